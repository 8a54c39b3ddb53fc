import type { PermissionOption } from '../../../protocol/agent-events.ts';
import { PERMISSION_LIMITS } from '../../../protocol/permissions.ts';
import type { Permissions } from '../../../protocol/profile.ts';
import { chooseOption } from '../permission-policy.ts';
import { cutJson } from './bounded-text.ts';
import { type NewPermission, type SettledPermission, contentOfJson } from './effects.ts';
import type { Outbox } from './outbox.ts';
import { automaticAnswer, commandOf, optionsOf } from './permission-requests.ts';
import * as requests from './requests.ts';
import type { AcpState, WaitingPermission } from './state.ts';
import type { TurnContent } from './turn-content.ts';
import { PermissionParamsSchema, RPC_ERRORS, type RpcId, ToolUpdateSchema } from './wire.ts';

export interface WaitingPermissionsOptions {
  readonly permissions: () => Permissions;
  /** Creates `perm-…`. */
  readonly newPermissionId: () => string;
}

/** What the agent asks, until somebody answers. */
export class WaitingPermissions {
  readonly #state: AcpState;
  readonly #outbox: Outbox;
  readonly #options: WaitingPermissionsOptions;

  constructor(state: AcpState, outbox: Outbox, options: WaitingPermissionsOptions) {
    this.#state = state;
    this.#outbox = outbox;
    this.#options = options;
  }

  /** A request of the agent, in a message of `size` bytes. `content`: of the turn that runs. */
  onRequest(rpcId: RpcId, params: unknown, size: number, content: TurnContent | null): void {
    const { turn, waiting } = this.#state;
    if (turn?.phase !== 'prompted' || turn.isCancelled || turn.isOverLimit || turn.budget.question !== null) {
      this.#outbox.send(requests.permissionLine(rpcId, null));
      return;
    }
    if (waiting.some((one) => one.rpcId === rpcId)) {
      this.#outbox.send(
        requests.errorLine(rpcId, RPC_ERRORS.invalidRequest, 'a request with this id is open'),
      );
      return;
    }
    const parsed = PermissionParamsSchema.safeParse(params);
    const options = parsed.success ? optionsOf(parsed.data.options) : [];
    if (!parsed.success || options.length === 0) {
      this.#outbox.send(requests.permissionLine(rpcId, null));
      this.#outbox.notice(
        'bad_permission',
        'The agent asked for a permission without options that can be chosen',
        true,
      );
      return;
    }
    turn.permissions += 1;
    if (turn.permissions > PERMISSION_LIMITS.perTurn) {
      // Without a row or an event: they would be without end.
      this.#noticeTooManyPermissions();
      const rejection = chooseOption(options, 'reject_once');
      this.#outbox.send(requests.permissionLine(rpcId, rejection?.id ?? null));
      return;
    }
    const call = ToolUpdateSchema.safeParse(parsed.data.toolCall);
    if (call.success) content?.applyTool(call.data, size);
    const tool = call.success ? (content?.tool(call.data.toolCallId) ?? null) : null;
    const asked: NewPermission = {
      id: this.#options.newPermissionId(),
      turnId: turn.id,
      kind: tool?.kind ?? 'other',
      title: tool === null || tool.title === '' ? 'Use a tool' : tool.title,
      locations: tool?.locations ?? [],
      options,
      command: call.success ? commandOf(call.data.rawInput) : null,
    };
    const stored = contentOfJson(cutJson(parsed.data.toolCall, PERMISSION_LIMITS.callBytes - 2048));
    this.#outbox.emit({
      type: 'permission.asked',
      data: {
        permissionId: asked.id,
        turnId: turn.id,
        call: call.success ? call.data.toolCallId.toWellFormed() : null,
        kind: asked.kind,
        title: asked.title,
        options,
        content: stored.content,
      },
      bytes: stored.bytes,
    });
    this.#outbox.ask(asked);
    this.#state.waiting.push({ id: asked.id, rpcId, options });
    this.#decide(asked);
  }

  /** A person answered. The row and the event are stored by whoever took the answer. */
  answer(permissionId: string, option: PermissionOption): void {
    this.#reply(this.take(permissionId), option);
  }

  /** It waits no more. */
  take(permissionId: string): WaitingPermission | undefined {
    const at = this.#state.waiting.findIndex(({ id }) => id === permissionId);
    return at === -1 ? undefined : this.#state.waiting.splice(at, 1)[0];
  }

  /** A question of ours, always for a person: what the profile says about permissions does not answer it. */
  ask({
    id,
    title,
    options,
  }: Pick<NewPermission, 'id' | 'title'> & { readonly options: PermissionOption[] }): void {
    const { turn } = this.#state;
    if (turn === null) return;
    const asked = { id, turnId: turn.id, kind: 'other', title, options } as const;
    const { id: permissionId, ...rest } = asked;
    const data = { permissionId, ...rest, call: null, content: null };
    this.#outbox.emit({ type: 'permission.asked', data, bytes: null });
    this.#outbox.ask({ ...asked, locations: [], command: null });
    this.#state.waiting.push({ id, rpcId: null, options });
  }

  /** Nobody can answer them any more. */
  cancelAll(): void {
    for (const { id } of [...this.#state.waiting]) this.#settle(id, null, { kind: 'turn', name: null });
    this.#state.waiting = [];
  }

  /** The agent no longer wants to know. */
  withdraw(rpcId: RpcId): void {
    const permission = this.#state.waiting.find((one) => one.rpcId === rpcId);
    if (permission === undefined) return;
    const line = requests.errorLine(rpcId, RPC_ERRORS.requestCancelled, 'cancelled');
    this.#settle(permission.id, null, { kind: 'turn', name: null }, line);
  }

  #noticeTooManyPermissions(): void {
    this.#outbox.notice(
      'too_many_permissions',
      'The agent asks for more permissions than can wait: further ones are rejected',
    );
  }

  /** Answers at once what the profile answers, and what is too much to ask a person. */
  #decide(asked: NewPermission): void {
    if (this.#state.waiting.length > PERMISSION_LIMITS.waiting) {
      this.#noticeTooManyPermissions();
      this.#settle(asked.id, chooseOption(asked.options, 'reject_once'), { kind: 'turn', name: null });
      return;
    }
    const answer = automaticAnswer(this.#options.permissions(), asked);
    if (answer !== null) this.#settle(asked.id, answer.option, answer.by);
  }

  #reply(permission: WaitingPermission | undefined, option: PermissionOption | null): void {
    const rpcId = permission?.rpcId ?? null;
    if (rpcId !== null) this.#outbox.send(requests.permissionLine(rpcId, option?.id ?? null));
  }

  /** `line`: to the agent, instead of the answer. */
  #settle(
    id: string,
    option: PermissionOption | null,
    by: SettledPermission['by'],
    line: Buffer | null = null,
  ): void {
    const { turn } = this.#state;
    const permission = this.take(id);
    if (permission === undefined || turn === null) return;
    if (line === null) this.#reply(permission, option);
    else this.#outbox.send(line);
    this.#outbox.settle({ id, option, by });
    const data = { permissionId: permission.id, turnId: turn.id, option, by };
    this.#outbox.emit({ type: 'permission.answered', data, bytes: null });
  }
}
