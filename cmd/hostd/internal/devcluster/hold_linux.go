package devcluster

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
)

// holdPort takes a port that nobody has, and holds it until the holder is
// closed. The holder is bound and does not listen: the system gives its port to
// nobody who takes any, and lets a node listen that asks for just this one,
// which binds with SO_REUSEADDR as every Go program does. Two holders do not
// meet, as they bind without. Only a port that was asked for by its number is
// tried with it too: its last connections may still be remembered.
func holdPort(address string, asked bool) (string, io.Closer, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(context.Background(), host)
	if err != nil {
		return "", nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", nil, err
	}
	family, to := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: int(number), Addr: [16]byte(ips[0].IP.To16())})
	if ip := ips[0].IP.To4(); ip != nil {
		family, to = syscall.AF_INET, &syscall.SockaddrInet4{Port: int(number), Addr: [4]byte(ip)}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	held := socket(fd)
	reuse := func() error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }
	if err = syscall.Bind(fd, to); err == syscall.EADDRINUSE && asked {
		if err = reuse(); err == nil {
			err = syscall.Bind(fd, to)
		}
	}
	if err != nil {
		return "", nil, errors.Join(&net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{IP: ips[0].IP, Port: int(number)}, Err: os.NewSyscallError("bind", err)}, held.Close())
	}
	if err := reuse(); err != nil {
		return "", nil, errors.Join(os.NewSyscallError("setsockopt", err), held.Close())
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, errors.Join(os.NewSyscallError("getsockname", err), held.Close())
	}
	switch b := bound.(type) {
	case *syscall.SockaddrInet4:
		number = uint64(b.Port)
	case *syscall.SockaddrInet6:
		number = uint64(b.Port)
	}
	return net.JoinHostPort(ips[0].IP.String(), strconv.FormatUint(number, 10)), held, nil
}

// socket is a file descriptor.
type socket int

func (s socket) Close() error { return os.NewSyscallError("close", syscall.Close(int(s))) }
