//go:build !linux

package devcluster

import (
	"io"
	"net"
)

// holdPort finds a free port. On this system a port cannot be reserved for
// another process, so closing the holder does nothing.
func holdPort(address string, _ bool) (string, io.Closer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), io.NopCloser(nil), l.Close()
}
