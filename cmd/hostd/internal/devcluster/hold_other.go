//go:build !linux

package devcluster

import (
	"io"
	"net"
)

// holdPort finds a port that nobody has. Where a port cannot be held for
// another process the holder holds nothing.
func holdPort(address string, _ bool) (string, io.Closer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), io.NopCloser(nil), l.Close()
}
