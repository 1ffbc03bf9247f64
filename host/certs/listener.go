package certs

import (
	"crypto/tls"
	"net"
)

// handshakeRecord is the first byte of a connection that speaks TLS. No HTTP
// request begins with it.
const handshakeRecord = 0x16

// Listen wraps a listener so that connections that begin a handshake speak TLS.
// Others are accepted as they are where their first byte is known, from a
// First() byte of theirs or of what a NetConn() net.Conn of theirs lies on;
// what does not tell must speak TLS.
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
