package network

import (
	"context"
	"net"
)

// NodeOf is the node on the other side of a connection, where that has proven
// which it is: the Node() string of conn, or of what a NetConn() net.Conn of
// its lies on.
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

// WithNode is for http.Server.ConnContext: requests know who is on the other
// side of their connection.
func WithNode(ctx context.Context, conn net.Conn) context.Context {
	if node, proven := NodeOf(conn); proven {
		return context.WithValue(ctx, nodeKey{}, node)
	}
	return ctx
}

// CallerOf is the node that makes a request, where it has proven which it is.
func CallerOf(ctx context.Context) (node string, proven bool) {
	node, proven = ctx.Value(nodeKey{}).(string)
	return node, proven
}
