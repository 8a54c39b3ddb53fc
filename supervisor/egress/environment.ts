import { EGRESS_PROXY, HOST_MACHINE } from '../../protocol/egress.ts';

const PROXY = `http://${EGRESS_PROXY.host}:${String(EGRESS_PROXY.port)}`;
/** The sandbox's own loopback is reached directly: servers that an agent starts are its own, and the host's ports are there under its name. */
const DIRECT = `localhost,127.0.0.1,::1,${HOST_MACHINE.name}`;

/**
 * What makes the programs in a sandbox use its proxy. Programs that know no proxy reach nothing. Every sandbox has it, so that a
 * host that is allowed later is reached by what runs already.
 */
export function proxyEnvironment(): Record<string, string> {
  return {
    HTTP_PROXY: PROXY,
    HTTPS_PROXY: PROXY,
    ALL_PROXY: PROXY,
    NO_PROXY: DIRECT,
    http_proxy: PROXY,
    https_proxy: PROXY,
    all_proxy: PROXY,
    no_proxy: DIRECT,
    GIT_CONFIG_COUNT: '1',
    GIT_CONFIG_KEY_0: 'http.proxy',
    GIT_CONFIG_VALUE_0: PROXY,
    npm_config_proxy: PROXY,
    npm_config_https_proxy: PROXY,
    npm_config_noproxy: DIRECT,
    PIP_PROXY: PROXY,
    // By itself it tries five times more, for seven seconds, what has been denied.
    PIP_RETRIES: '1',
  };
}

/** For Node's fetch. Only where something is allowed, or may well be: it makes every Node program start some 35 ms later. */
export const NODE_ENVIRONMENT: Readonly<Record<string, string>> = { NODE_USE_ENV_PROXY: '1' };
