package network

import (
	"context"
	"net"
)

// NodeOf returns the node on the other side of a connection if the connection
// has proven its identity: the result of a Node() string method of conn or of a
// connection below it (NetConn() net.Conn).
func NodeOf(conn net.Conn) (node string, proven bool) {
	for conn != nil {
		if c, ok := conn.(interface{ Node() string }); ok {
			return c.Node(), true
		}
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = over.NetConn()
	}
	return "", false
}

type nodeKey struct{}

// WithNode is for http.Server.ConnContext. It makes CallerOf work in the
// requests of the connection.
func WithNode(ctx context.Context, conn net.Conn) context.Context {
	if node, proven := NodeOf(conn); proven {
		return context.WithValue(ctx, nodeKey{}, node)
	}
	return ctx
}

// CallerOf returns the node that makes a request if its connection has proven
// that.
func CallerOf(ctx context.Context) (node string, proven bool) {
	node, proven = ctx.Value(nodeKey{}).(string)
	return node, proven
}
