package host

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// carried writes audit lines for work that this node does at another node's
// request: metadata commands that it proposes, modules that it stores or sends,
// and its part of exports and imports. The calling node names the client that
// it acts for. The calling node audits the client's call too, but its log
// does not help if that node lies.
type carried struct{ n *Node }

// exported maps procedures of exports and imports to the verbs of their audit
// lines. Calls of their other procedures get no line.
var exported = map[string]string{
	peerv1connect.TransferServiceHoldProcedure:        "export",
	peerv1connect.TransferServiceCutProcedure:         "export",
	peerv1connect.TransferServiceReadCutProcedure:     "export",
	peerv1connect.TransferServiceImportChunkProcedure: "admin",
}

// entry returns the audit line of a call, and false if the call gets none.
func (c carried) entry(ctx context.Context, procedure, address string, said http.Header, message any) (audit.Entry, bool) {
	e := audit.Entry{Method: procedure, Address: address, Verb: exported[procedure]}
	if m, ok := message.(*peerv1.ProposeRequest); ok {
		var op string
		op, e.Target = meta.Describe(m.GetCommand())
		e.Verb = meta.VerbOf(op)
	}
	if e.Verb == "" {
		return e, false
	}
	by(&e, ctx, said)
	return e, true
}

// by sets the calling node, and the client for which the node says that it
// calls.
func by(e *audit.Entry, ctx context.Context, said http.Header) {
	node := string(peer.CallerOf(ctx).Node)
	e.Via, e.Principal = audit.Via(node), audit.Principal{Kind: audit.KindNode, Name: node}
	if s, err := principal.ParseHeader(said.Get(principal.Header)); err == nil && s.Caller != nil {
		e.Principal, e.Policy = audit.Principal{Kind: string(s.Caller.Kind), Name: s.Caller.Name}, s.Roles
	}
}

// blobs maps the procedures that store a module here, or fetch one, to the
// verbs of the client calls behind them.
var blobs = map[string]string{
	peerv1connect.PeerServicePutBlobProcedure: "deploy",
	peerv1connect.PeerServiceGetBlobProcedure: "download",
}

// blob serves a stream about a module; the module is named by the first
// message. Storing a module is a change and always gets a line. Fetching one
// gets a line only if every call is audited.
func (c carried) blob(ctx context.Context, conn connect.StreamingHandlerConn, next connect.StreamingHandlerFunc) error {
	e := audit.Entry{Method: conn.Spec().Procedure, Address: conn.Peer().Addr, Verb: blobs[conn.Spec().Procedure]}
	by(&e, ctx, conn.RequestHeader())
	var end func(error)
	err := next(ctx, &firstBlob{conn, func(m any) (err error) {
		switch m := m.(type) {
		case *peerv1.PutBlobRequest:
			e.Target = fmt.Sprintf("digest=%x size=%d", upTo(m.GetDigest()), m.GetSize())
			end, err = c.begin(ctx, e)
		case *peerv1.GetBlobRequest:
			e.Target = fmt.Sprintf("digest=%x", upTo(m.GetDigest()))
			c.n.audit.Pass(e)
		}
		return err
	}})
	if end != nil {
		end(err)
	}
	return err
}

// upTo cuts a digest to the length of a digest. The digest has not been
// validated yet, so it could be arbitrarily long.
func upTo(digest []byte) []byte { return digest[:min(len(digest), len(journal.Digest{}))] }

// firstBlob is a stream that calls seen with its first message.
type firstBlob struct {
	connect.StreamingHandlerConn
	seen func(message any) error // set to nil after the call
}

// Receive implements connect.StreamingHandlerConn. It isn't safe for concurrent
// use.
func (f *firstBlob) Receive(into any) error {
	if err := f.StreamingHandlerConn.Receive(into); err != nil || f.seen == nil {
		return err
	}
	seen := f.seen
	f.seen = nil
	return seen(into)
}

// WrapUnary implements connect.Interceptor.
func (c carried) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		e, has := c.entry(ctx, r.Spec().Procedure, r.Peer().Addr, r.Header(), r.Any())
		if !has {
			return next(ctx, r)
		}
		end, err := c.begin(ctx, e)
		if err != nil {
			return nil, err
		}
		res, err := next(ctx, r)
		end(err)
		return res, err
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (c carried) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if blobs[conn.Spec().Procedure] != "" {
			return c.blob(ctx, conn, next)
		}
		e, has := c.entry(ctx, conn.Spec().Procedure, conn.Peer().Addr, conn.RequestHeader(), nil)
		if !has {
			return next(ctx, conn)
		}
		end, err := c.begin(ctx, e)
		if err != nil {
			return err
		}
		err = next(ctx, conn)
		end(err)
		return err
	}
}

// WrapStreamingClient implements connect.Interceptor. A server never uses it.
func (c carried) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// begin writes the audit line before the work starts. If the line cannot be
// written, the other node gets an error that says nothing was done.
func (c carried) begin(ctx context.Context, e audit.Entry) (end func(error), err error) {
	if end, err = c.n.audit.Carry(ctx, e); err != nil {
		return nil, c.n.peers.Fault(fmt.Errorf("%w: the audit log cannot be written", peer.ErrUnavailable))
	}
	return end, nil
}

// procedureOf maps a kind of request to the procedure that clients call for it.
var procedureOf = map[request.Kind]string{
	request.Command: entityv1connect.EntityServiceSendCommandProcedure, request.Query: entityv1connect.EntityServiceQueryEntityProcedure, request.StaleQuery: entityv1connect.EntityServiceQueryEntityProcedure,
}

// auditForwarded writes the audit line of a request that another node forwarded for a
// client.
func (n *Node) auditForwarded(from sharding.NodeID, r *request.Request) {
	procedure, called := procedureOf[r.Kind]
	if !called {
		return
	}
	e := audit.Entry{
		Principal: audit.Principal{Kind: audit.KindNode, Name: string(from)}, Via: audit.Via(string(from)), Method: procedure,
		Type: r.Entity.Type, ID: r.Entity.ID, CommandID: string(r.ID), Policy: r.Roles,
	}
	if r.Principal != nil {
		e.Principal = audit.Principal{Kind: string(r.Principal.Kind), Name: r.Principal.Name}
	}
	n.audit.Pass(e)
}
