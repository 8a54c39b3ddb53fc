/** The name of this machine among the hosts, as in `hosts/base/host-list.ts`, which is in the second bundle. */
export const LOCAL = 'local';
