/** The dialog of the system. */
export function chooseFiles(onChosen: (files: FileList | null) => void): void {
  const input = document.createElement('input');
  input.type = 'file';
  input.multiple = true;
  input.onchange = () => onChosen(input.files);
  input.click();
}
