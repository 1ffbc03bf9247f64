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

// carried writes into the audit log what this node does for others: commands of
// the metadata that they propose, modules that they store here, and their parts
// of exports and imports. The
// node that asks says for whom. It keeps its own account, which does not help
// if it lies.
type carried struct{ n *Node }

// exported are the procedures of exports and imports that have lines.
var exported = map[string]string{
	peerv1connect.TransferServiceHoldProcedure:        "export",
	peerv1connect.TransferServiceCutProcedure:         "export",
	peerv1connect.TransferServiceReadCutProcedure:     "export",
	peerv1connect.TransferServiceImportChunkProcedure: "admin",
}

// entry is the line of a call; false if it has none.
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

// by notes which node calls, and for whom.
func by(e *audit.Entry, ctx context.Context, said http.Header) {
	node := string(peer.CallerOf(ctx).Node)
	e.Via, e.Principal = audit.Via(node), audit.Principal{Kind: audit.KindNode, Name: node}
	if s, err := principal.ParseHeader(said.Get(principal.Header)); err == nil && s.Caller != nil {
		e.Principal, e.Policy = audit.Principal{Kind: string(s.Caller.Kind), Name: s.Caller.Name}, s.Roles
	}
}

// blobs are the calls that bring modules here, or fetch them, with the verbs of
// what a client would call for that.
var blobs = map[string]string{
	peerv1connect.PeerServicePutBlobProcedure: "deploy",
	peerv1connect.PeerServiceGetBlobProcedure: "download",
}

// blob serves a call about a module, of which the first message says which. A
// module that is stored here is a change; one that is fetched from here has a
// line only if every call has one.
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

// upTo is what a line has of a digest, which nobody has checked yet.
func upTo(digest []byte) []byte { return digest[:min(len(digest), len(journal.Digest{}))] }

// firstBlob calls seen with the first message of a stream.
type firstBlob struct {
	connect.StreamingHandlerConn
	seen func(message any) error // nil once it was called
}

// Receive implements connect.StreamingHandlerConn. It is for one goroutine.
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

// WrapStreamingClient implements connect.Interceptor; a server has no clients.
func (c carried) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// begin writes the line. The other node hears that nothing was done if it
// cannot be written.
func (c carried) begin(ctx context.Context, e audit.Entry) (end func(error), err error) {
	if end, err = c.n.audit.Carry(ctx, e); err != nil {
		return nil, c.n.peers.Fault(fmt.Errorf("%w: the audit log cannot be written", peer.ErrUnavailable))
	}
	return end, nil
}

// asked is the procedure by which a client asks for a kind of request.
var asked = map[request.Kind]string{
	request.Command: entityv1connect.EntityServiceSendProcedure, request.Query: entityv1connect.EntityServiceQueryProcedure, request.StaleQuery: entityv1connect.EntityServiceQueryProcedure,
}

// passed writes a request that another node has brought for its caller.
func (n *Node) passed(from sharding.NodeID, r *request.Request) {
	procedure, called := asked[r.Kind]
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
