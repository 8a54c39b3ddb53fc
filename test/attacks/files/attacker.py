"""What a hostile agent does in its container. The first argument is the deed; see attackers at the end."""
import ctypes, os, socket, sys, time

libc = ctypes.CDLL(None, use_errno=True)
SYS_RENAMEAT2 = {'x86_64': 316, 'aarch64': 276}[os.uname().machine]
AT_FDCWD, RENAME_EXCHANGE = -100, 2
OUTSIDE = ['/ctl', '../../ctl', '/proc/self/root/ctl', '/proc/1/root/ctl', '/workspace/../ctl', '/proc/self/cwd/ctl']


def exchange(one, other):
    if libc.syscall(SYS_RENAMEAT2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) != 0:
        return ctypes.get_errno()
    return 0


def begun():
    """Whoever waits for this deed may do what it is meant for."""
    open('/run/holdfast/begun', 'w').close()


def swap(folder, seconds):
    """Swaps a folder with a link out of the workspace, and a file with such a link and with a FIFO, as fast as it can."""
    end = time.time() + seconds
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)

    def remake():
        if not any(os.path.isdir(name) and not os.path.islink(name) for name in 'dl'):
            free = [name for name in 'dl' if not os.path.lexists(name)]
            os.mkdir(free[0] if free else 'spare')
        for name in 'dl':
            if not os.path.lexists(name):
                os.symlink(OUTSIDE[0], name)
        if not any(os.path.isfile(name) and not os.path.islink(name) for name in 'fsp'):
            free = [name for name in 'fsp' if not os.path.lexists(name)]
            open(free[0] if free else 'spare-file', 'w').write('inside')
        for name in 'fsp':
            if not os.path.lexists(name):
                os.mkfifo(name)

    os.makedirs('d', exist_ok=True)
    open('d/secret', 'w').write('inside')
    open('f', 'w').write('inside')
    os.mkfifo('p')
    count = 0
    begun()
    while time.time() < end and not os.path.exists('/workspace/stop'):
        target = OUTSIDE[count % len(OUTSIDE)]
        for name, to in (('l', target), ('s', target + '/secret')):
            # Whatever the name is now, a link of the next kind takes its place, and never that of the folder or file.
            try:
                os.symlink(to, 'new')
                if os.path.islink(name) or not os.path.lexists(name):
                    os.rename('new', name)
                else:
                    os.unlink('new')
            except OSError:
                pass  # the sidecar was faster
        for _ in range(200):
            failed = exchange(b'd', b'l') or exchange(b'f', b's') or exchange(b'f', b'p')
            # What was removed is made anew; that nothing can be swapped would make the test worthless.
            if failed:
                try:
                    remake()
                except OSError:
                    pass  # the sidecar was faster
            count += 1
            # Whatever was taken away comes back, so that there is something to be had.
            for path in ('d/secret', 'l/secret'):
                try:
                    if not os.path.islink(path[0]) and not os.path.exists(path):
                        open(path, 'w').write('inside')
                except OSError:
                    pass
    print('swapped', count)


def hard_names(folder):
    os.makedirs(folder, exist_ok=True)
    base = os.fsencode(folder)
    for name in [b'caf\xe9', b'\xff\xfe', b'a\nb', b'-rf', b'\xe2\x80\xaegpj.exe', b'a\\b', b'..%2fetc', b'\xe2\x90\x9b', b' ', b'\x1b[31m', b'n' * 255]:
        with open(os.path.join(base, name), 'wb') as f:
            f.write(name)


def special(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for n in range(64):
        os.mkfifo('fifo-%d.ts' % n)
    socket.socket(socket.AF_UNIX).bind('socket')
    open('setuid', 'w').write('s')
    os.chmod('setuid', 0o4755)
    open('secret', 'w').write('x')
    os.chmod('secret', 0)
    os.mkdir('closed')
    open('closed/f', 'w').write('x')
    os.chmod('closed', 0)
    os.mkdir('unwritable')
    open('unwritable/f', 'w').write('x')
    os.chmod('unwritable', 0o555)
    os.mkdir('unsearchable')
    open('unsearchable/f', 'w').write('x')
    os.chmod('unsearchable', 0o444)
    try:
        os.mknod('device', 0o20666, os.makedev(1, 3))
        print('device made')
    except OSError:
        pass
    for name, size in (('tera', 2 ** 40), ('ten', 10 * 10 ** 9)):
        with open(name, 'wb') as f:
            f.truncate(size)
            f.seek(size - 3)
            f.write(b'end')


def deep(folder, depth):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for _ in range(depth):
        os.mkdir('d')
        os.chdir('d')
    open('bottom', 'w').write('x')


def links(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    for name, to in {
        'passwd': '/etc/passwd', 'environ': '/proc/self/environ', 'sock': '/ctl/sidecar.sock', 'canary': '/ctl/secret', 'ctl': '/ctl',
        'run': '/run/holdfast', 'runtime': '/opt/holdfast', 'program': '/opt/holdfast/sidecar.cjs', 'root': '/', 'up': '../../..',
        'up-passwd': '../../../etc/passwd', 'self': 'self', 'one': 'two', 'two': 'one', 'fd': '/proc/self/fd', 'fd3': '/proc/self/fd/3',
        'procroot': '/proc/1/root/etc/passwd', 'back': '/workspace/../etc/passwd', 'tmp': '/tmp', 'dev': '/dev/null', 'mem': '/proc/self/mem',
        'kmsg': '/dev/kmsg', 'stdin': '/dev/stdin', 'sys': '/sys/kernel', 'long': 'x/' * 2000, 'dots': '../' * 500 + 'etc/passwd',
    }.items():
        os.symlink(to, name)


def edit(path, seconds):
    """Replaces a file over and over by others of the same size, in place and by rename."""
    end = time.time() + seconds
    count = 0
    begun()
    while time.time() < end and not os.path.exists('/workspace/stop'):
        count += 1
        text = 'agent  %08d' % count
        if count % 2:
            open(path + '.agent', 'w').write(text)
            os.rename(path + '.agent', path)
        else:
            with open(path, 'r+') as f:
                f.write(text)
        # Now often enough that nobody else's edit fits in between, now seldom enough that one does.
        time.sleep(0.0005 * (count % 16))
    print('edited', count)


def bait(folder, seconds):
    """A folder of files that trades places with a link to a folder outside whose files have the same names."""
    end = time.time() + seconds
    os.makedirs(folder + '/d')
    os.chdir(folder)
    for n in range(400):
        open('d/f%03d' % n, 'w').write('inside needle\n')
    os.symlink('/ctl/bait', 'l')
    count = 0
    begun()
    while time.time() < end and not os.path.exists('/workspace/stop'):
        for _ in range(100):
            exchange(b'd', b'l')
            count += 1
        # Searching takes longer than a swap: now and then there is time to step in.
        time.sleep(0.001 * (count % 700) / 100)
    print('swapped', count)


def turns(path, size, seconds):
    """A file that is replaced by others of the same size and of one letter each, as a build does."""
    end = time.time() + seconds
    count = 0
    begun()
    while time.time() < end and not os.path.exists('/workspace/stop'):
        count += 1
        with open(path + '.next', 'wb') as f:
            f.write(bytes([97 + count % 26]) * size)
        os.rename(path + '.next', path)
        time.sleep(0.01 * (count % 40))
    print('replaced', count)


attackers = {
    'bait': lambda folder, seconds: bait(folder, float(seconds)),
    'turns': lambda path, size, seconds: turns(path, int(size), float(seconds)),
    'swap': lambda folder, seconds: swap(folder, float(seconds)),
    'hard-names': hard_names,
    'special': special,
    'deep': lambda folder, depth: deep(folder, int(depth)),
    'links': links,
    'edit': lambda path, seconds: edit(path, float(seconds)),
}
attackers[sys.argv[1]](*sys.argv[2:])
