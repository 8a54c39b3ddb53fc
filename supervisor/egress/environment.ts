import { EGRESS_PROXY, HOST_MACHINE } from '../../protocol/egress.ts';

const PROXY = `http://${EGRESS_PROXY.host}:${String(EGRESS_PROXY.port)}`;
/**
 * The sandbox's own loopback is reached directly: servers that an agent starts are local, and ports of the host
 * machine are available under its name.
 */
const DIRECT = `localhost,127.0.0.1,::1,${HOST_MACHINE.name}`;

/** How many settings git gets by variables, from 0 on. */
export const GIT_SETTINGS = 1;

/**
 * Variables that make programs in a sandbox use its proxy; programs without proxy support reach nothing. Every
 * sandbox has them, so running processes can reach a host that is allowed later.
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
    GIT_CONFIG_COUNT: String(GIT_SETTINGS),
    GIT_CONFIG_KEY_0: 'http.proxy',
    GIT_CONFIG_VALUE_0: PROXY,
    npm_config_proxy: PROXY,
    npm_config_https_proxy: PROXY,
    npm_config_noproxy: DIRECT,
    PIP_PROXY: PROXY,
    // By default pip retries a denied request five times, for seven seconds.
    PIP_RETRIES: '1',
  };
}

/**
 * For Node's fetch. Set only if something is or may be allowed: it delays the start of every Node program by about 35
 * ms.
 */
export const NODE_ENVIRONMENT: Readonly<Record<string, string>> = { NODE_USE_ENV_PROXY: '1' };
