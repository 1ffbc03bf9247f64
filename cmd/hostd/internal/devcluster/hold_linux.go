package devcluster

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// holdPort reserves a free port for a node until the holder is closed.
//
// The holder is bound but does not listen. The system never assigns its port to
// a process that asks for any port. A node that asks for exactly this port can
// listen on it, because every Go program binds with SO_REUSEADDR. Two holders
// cannot share a port, because they bind without that option at first. Only for
// a port that was requested by number, holdPort then tries with the option too,
// because connections of the previous user may still be in TIME_WAIT.
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
