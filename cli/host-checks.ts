import type { Check } from '../protocol/entities.ts';

/** What was found out about a machine at the login, as checks. The texts come from that machine. */
export function surveyChecks(survey: Readonly<Record<string, unknown>>): Check[] {
  const fact = (name: string): string => {
    const value = survey[name];
    return typeof value === 'string' ? value : '';
  };
  const { freeKiB } = survey;
  const free =
    typeof freeKiB === 'number' ? `${Math.floor(freeKiB / 1024 / 1024)} GiB free` : 'space unknown';
  const docker = fact('docker');
  return [
    check('login', 'ok', `as ${fact('user').split(' ')[0] ?? ''}`, null),
    check('system', 'ok', `${fact('system')} on ${fact('arch')}`, null),
    check('home', 'ok', `${fact('root')}, ${free}`, null),
    docker === 'denied'
      ? check('docker', 'problem', 'its socket cannot be used', 'add the user to the group docker there')
      : docker === 'absent'
        ? check('docker', 'problem', 'no engine runs there', 'install Docker there, or start it')
        : check('docker', 'ok', 'its socket is there', null),
  ];
}

function check(name: string, status: Check['status'], found: string, next: string | null): Check {
  return { name: `host ${name}`, status, found, next };
}
