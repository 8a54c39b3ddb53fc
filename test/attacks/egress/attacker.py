"""What a hostile agent does with its network. Reads one JSON object {"deed": …} and prints what came of it as JSON."""
import base64
import ctypes
import json
import os
import select
import socket
import struct
import sys
import time

PROXY = ("127.0.0.1", 3128)


def outcome(deed):
    try:
        return {"did": deed()}
    except OSError as error:
        return {"error": error.strerror or str(error), "errno": error.errno}


def read_all(connection, seconds):
    """Everything until the end; says how it ended."""
    parts, end = [], time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return b"".join(parts), "open"
        connection.settimeout(left)
        try:
            chunk = connection.recv(65536)
        except socket.timeout:
            return b"".join(parts), "open"
        except ConnectionResetError:
            return b"".join(parts), "reset"
        if not chunk:
            return b"".join(parts), "ended"
        parts.append(chunk)


def say(request, seconds=5.0):
    """One connection to the proxy, these bytes, what came back."""
    began = time.monotonic()
    connection = socket.create_connection(PROXY)
    with connection:
        try:
            connection.sendall(request)
        except OSError:
            pass
        answer, ended = read_all(connection, seconds)
    took = round((time.monotonic() - began) * 1000)
    return {"answer": base64.b64encode(answer).decode(), "ended": ended, "ms": took}


def tcp(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.5)
        connection.connect(address)
        return "connected"


def udp(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as datagram:
        datagram.settimeout(0.7)
        datagram.sendto(b"\x12\x34\x01\x00\x00\x01" + bytes(6) + b"\x04open\x04test\x00\x00\x01\x00\x01", address)
        return "answered" if datagram.recvfrom(512) else "nothing"


def direct(targets, port):
    """Without the proxy: TCP and UDP to every address."""
    found = {}
    for target in targets:
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        found[f"tcp {target}"] = outcome(lambda: tcp(family, (target, port)))
        found[f"udp {target}"] = outcome(lambda: udp(family, (target, 53)))
    return found


def raw_socket(*kind):
    with socket.socket(*kind):
        return "made"


def ping(kind):
    with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as icmp:
        icmp.settimeout(0.7)
        icmp.sendto(struct.pack("!BBHHH", 8, 0, 0, 1, 1), ("169.254.169.254", 0))
        return "answered" if icmp.recv(512) else "nothing"


def new_route():
    """RTM_NEWLINK of a dummy interface: needs CAP_NET_ADMIN."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        info = struct.pack("HH", 9, 1) + b"dummy\0" + b"\0" * 3
        nested = struct.pack("HH", 4 + len(info), 18) + info
        body = struct.pack("BxHiII", 0, 0, 0, 1, 0xFFFFFFFF) + nested
        link.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
        answer = link.recv(4096)
        code = struct.unpack_from("i", answer, 16)[0]
        if code != 0:
            raise OSError(-code, os.strerror(-code))
        return "made"


# Numbers of system calls: x86-64, and arm64 like all newer ones.
NUMBERS = {"socket": (41, 198), "io_uring_setup": (425, 425)}


def system_call(name, *values, flag=0):
    libc = ctypes.CDLL(None, use_errno=True)
    number = NUMBERS[name][0 if os.uname().machine == "x86_64" else 1] | flag
    made = libc.syscall(ctypes.c_long(number), *(v if isinstance(v, ctypes.Array) else ctypes.c_long(v) for v in values))
    if made < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(made)
    return "made"


def x32_socket():
    """By its number of another ABI, which may end the process."""
    pid = os.fork()
    if pid == 0:
        try:
            system_call("socket", 40, 1, 0, flag=0x40000000)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        raise OSError(abs(code), "killed" if code < 0 else os.strerror(code))
    return "made"


def interrupt_socket(number, first, second):
    """By a system call of 32-bit programs, in machine code; it may end the process. `second`: None for the address of arguments."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    # Readable, writable and executable; private, of no file, below 2 GiB.
    page = libc.mmap(None, 4096, 7, 0x62, -1, 0)
    if page == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "no memory")
    arguments = page + 2048
    ctypes.memmove(arguments, struct.pack("<III", 40, 1, 0), 12)
    code = b"\x53"  # push rbx
    code += b"\xb8" + struct.pack("<I", number)  # mov eax
    code += b"\xbb" + struct.pack("<I", first)  # mov ebx
    code += b"\xb9" + struct.pack("<I", arguments if second is None else second)  # mov ecx
    code += b"\x31\xd2\xcd\x80\x5b\xc3"  # xor edx, edx; int 0x80; pop rbx; ret
    ctypes.memmove(page, code, len(code))
    pid = os.fork()
    if pid == 0:
        answer = ctypes.CFUNCTYPE(ctypes.c_int)(page)()
        os._exit(0 if answer >= 0 else min(-answer, 255))
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended != 0:
        raise OSError(abs(ended), "killed" if ended < 0 else os.strerror(ended))
    return "made"


def io_uring():
    """It opens sockets of any family without the system call for it."""
    return system_call("io_uring_setup", 4, ctypes.create_string_buffer(120))


def unshare(flags):
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(flags) == 0 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise OSError(1, "not permitted")
    return "made"


def old_programs():
    if os.uname().machine != "x86_64":
        return {}
    return {
        "hypervisor, 32-bit socketcall": outcome(lambda: interrupt_socket(102, 1, None)),
        "hypervisor, 32-bit socket": outcome(lambda: interrupt_socket(359, 40, 1)),
    }


def kernel():
    return {
        "raw ip": outcome(lambda: raw_socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)),
        "raw icmp": outcome(lambda: ping(socket.SOCK_RAW)),
        "ping socket": outcome(lambda: ping(socket.SOCK_DGRAM)),
        "raw ipv6": outcome(lambda: raw_socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)),
        "packet": outcome(lambda: raw_socket(socket.AF_PACKET, socket.SOCK_RAW, 3)),
        "hypervisor": outcome(lambda: raw_socket(40, socket.SOCK_STREAM)),
        "hypervisor, datagrams": outcome(lambda: raw_socket(40, socket.SOCK_DGRAM)),
        # The kernel reads the lower half of the argument, a filter all of it.
        "hypervisor, high bits": outcome(lambda: system_call("socket", 40 | 1 << 32, 1, 0)),
        "hypervisor, x32": outcome(x32_socket),
        "hypervisor, io_uring": outcome(io_uring),
        **old_programs(),
        "crypto": outcome(lambda: raw_socket(38, socket.SOCK_SEQPACKET)),
        "new interface": outcome(new_route),
        "new user namespace": outcome(lambda: unshare(0x10000000)),
        "new network namespace": outcome(lambda: unshare(0x40000000)),
    }


def names():
    found = {}
    for name in ("open.test", "example.com", "host.docker.internal", "gateway.docker.internal", "metadata.google.internal"):
        try:
            found[name] = {"did": socket.getaddrinfo(name, 80)[0][4][0]}
        except socket.gaierror as error:
            found[name] = {"error": str(error)}
    return found


def interfaces():
    with open("/proc/net/route") as file:
        routes = len(file.read().strip().split("\n")) - 1
    return {"interfaces": sorted(os.listdir("/sys/class/net")), "routes": routes}


def sockets(paths):
    """Sockets of others: those that one would try, and every one that the kernel tells of or a walk finds."""
    found = {}
    with open("/proc/net/unix") as file:
        listed = [line.split()[7] for line in file.read().strip().split("\n")[1:] if len(line.split()) > 7]
    walked = []
    for top in ("/run", "/var", "/tmp", "/ctl", "/opt", "/home", "/workspace", "/agent"):
        for folder, _folders, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                try:
                    if (os.lstat(path).st_mode & 0o170000) == 0o140000:
                        walked.append(path)
                except OSError:
                    pass

    def connect(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(1.0)
            connection.connect("\0" + path[1:] if path.startswith("@") else path)
            return "connected"

    for path in [*paths, *listed, *walked]:
        found[path] = outcome(lambda: connect(path))
    return {"tried": found, "listed": listed, "walked": walked}


def hold(count, first, seconds, read):
    """`count` connections, each says `first`, and holds on without reading; then closes them all."""
    held, failed = [], 0
    for _ in range(count):
        try:
            connection = socket.create_connection(PROXY)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(first)
            held.append(connection)
        except OSError:
            failed += 1
    with open("/workspace/holding", "w") as file:
        file.write(str(len(held)))
    end = time.monotonic() + seconds
    got = 0
    while time.monotonic() < end and not os.path.exists("/workspace/let-go"):
        if read:
            for connection in select.select(held, [], [], 0.2)[0]:
                try:
                    got += len(connection.recv(read))
                except OSError:
                    pass
        time.sleep(0.2)
    reset = 0
    for connection in held:
        connection.setblocking(False)
        try:
            while connection.recv(65536):
                pass
        except BlockingIOError:
            pass
        except OSError:
            reset += 1
        connection.close()
    return {"held": len(held), "failed": failed, "reset": reset, "read": got}


def parallel(count, request, seconds):
    """`count` requests at once; how many were answered, and how."""
    poll, waiting, answers = select.poll(), {}, {}
    began = time.monotonic()
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(PROXY)
        waiting[connection.fileno()] = [connection, request, b""]
        poll.register(connection, select.POLLOUT)
    end = began + seconds
    while waiting and time.monotonic() < end:
        for number, event in poll.poll(200):
            entry = waiting[number]
            connection, left, got = entry
            kind = None
            try:
                if left and event & select.POLLOUT:
                    entry[1] = left[connection.send(left):]
                    poll.modify(connection, select.POLLIN)
                elif event & (select.POLLIN | select.POLLERR | select.POLLHUP):
                    chunk = connection.recv(65536)
                    entry[2] = got + chunk
                    if not chunk:
                        kind = entry[2][:12].decode("latin1") or "nothing"
            except OSError as error:
                kind = error.strerror
            if kind is not None:
                poll.unregister(connection)
                connection.close()
                del waiting[number]
                answers[kind] = answers.get(kind, 0) + 1
    for connection, _, _ in waiting.values():
        connection.close()
    if waiting:
        answers["open"] = len(waiting)
    return {"answers": answers, "ms": round((time.monotonic() - began) * 1000)}


def serve(port, seconds):
    """A server of this sandbox, for a neighbour to look for."""
    with socket.create_server(("0.0.0.0", port)) as server:
        server.settimeout(seconds)
        with open("/workspace/serving", "w") as file:
            file.write(str(port))
        try:
            server.accept()
            return "somebody came"
        except socket.timeout:
            return "nobody came"


order = json.load(sys.stdin)
deed = order["deed"]
if deed == "say":
    result = [say(base64.b64decode(one), order.get("seconds", 5.0)) for one in order["requests"]]
elif deed == "direct":
    result = direct(order["targets"], order["port"])
elif deed == "kernel":
    result = kernel()
elif deed == "names":
    result = names()
elif deed == "interfaces":
    result = interfaces()
elif deed == "sockets":
    result = sockets(order["paths"])
elif deed == "hold":
    result = hold(order["count"], base64.b64decode(order["first"]), order["seconds"], order.get("read", 0))
elif deed == "parallel":
    result = parallel(order["count"], base64.b64decode(order["request"]), order["seconds"])
elif deed == "serve":
    result = serve(order["port"], order["seconds"])
else:
    raise SystemExit(f"what is {deed}?")
print(json.dumps(result))
