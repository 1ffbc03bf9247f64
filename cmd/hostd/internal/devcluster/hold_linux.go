package devcluster

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// holdPort takes a port that nobody has, and holds it until the holder is
// closed. The holder is bound and does not listen: the system gives its port to
// nobody who takes any, and lets a node listen that asks for just this one,
// which binds with SO_REUSEADDR as every Go program does. Two holders do not
// meet, as they bind without. Only a port that was asked for by its number is
// tried with it too: its last connections may still be remembered.
func holdPort(address string, asked bool) (string, io.Closer, error) {
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return "", nil, err
	}
	if to.IP == nil {
		to.IP = net.IPv6unspecified // as net.Listen does
	}
	family, at := syscall.AF_INET6, syscall.Sockaddr(&syscall.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP.To16())})
	if ip := to.IP.To4(); ip != nil {
		family, at = syscall.AF_INET, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(ip)}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, os.NewSyscallError("socket", err)
	}
	held := socket(fd)
	reuse := func() error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }
	if err = syscall.Bind(fd, at); err == syscall.EADDRINUSE && asked {
		if err = reuse(); err == nil {
			err = syscall.Bind(fd, at)
		}
	}
	if err != nil {
		return "", nil, errors.Join(&net.OpError{Op: "listen", Net: "tcp", Addr: to, Err: os.NewSyscallError("bind", err)}, held.Close())
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
		to.Port = b.Port
	case *syscall.SockaddrInet6:
		to.Port = b.Port
	}
	return to.String(), held, nil
}

// socket is a file descriptor.
type socket int

func (s socket) Close() error { return os.NewSyscallError("close", syscall.Close(int(s))) }
