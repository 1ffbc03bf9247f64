package certs

import (
	"crypto/tls"
	"net"
)

// handshakeRecord is the first byte of a TLS connection. No HTTP request starts
// with it.
const handshakeRecord = 0x16

// Listen wraps a listener so that connections that start with a handshake use
// TLS. Any other connection is returned unchanged if its first byte is known.
// The connection, or an inner one that Listen finds through NetConn() net.Conn,
// returns that byte from a method First() byte. A connection whose first byte
// is unknown must use TLS.
func Listen(l net.Listener, config *tls.Config) net.Listener { return listener{l, config} }

type listener struct {
	net.Listener
	config *tls.Config
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if first, known := firstByte(conn); known && first != handshakeRecord {
		return conn, nil
	}
	return tls.Server(conn, l.config), nil
}

func firstByte(conn net.Conn) (first byte, known bool) {
	for conn != nil {
		if read, ok := conn.(interface{ First() byte }); ok {
			return read.First(), true
		}
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = over.NetConn()
	}
	return 0, false
}
