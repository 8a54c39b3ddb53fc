import { METHODS } from '../methods.ts';
import type { MethodName } from '../methods.ts';

/** Whether a request may be sent again after the connection broke before its response. */
export function mayRepeat(method: MethodName, params: object): boolean {
  switch (METHODS[method].repeat) {
    case 'safe':
      return true;
    case 'opId':
      return 'opId' in params && params.opId !== undefined;
    case 'ifVersion':
      return 'ifVersion' in params && params.ifVersion !== undefined;
    case 'never':
      return false;
  }
}
