package peer

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
)

const servicePath = "/" + peerv1connect.PeerServiceName + "/"

// Bounds of messages other than those of links.
const (
	maxCallBytes  = 4 << 20
	maxOpenBytes  = 1 << 10   // of a call that anyone may make
	maxHeadBytes  = 64 << 10  // of a snapshot's header
	maxChunkBytes = 256 << 10 // of a snapshot or a module
	maxPieceBytes = maxChunkBytes + maxHeadBytes + 64
)

// noCompression keeps both sides from compressing: what is large is compressed
// or random already, and what is compressed costs its receiver far more than
// its sender.
var noCompression = connect.WithAcceptCompression("gzip", nil, nil)

// newHandler mounts the service behind the check of who calls.
func (p *Peers) newHandler() http.Handler {
	common := connect.WithHandlerOptions(connect.WithCompression("gzip", nil, nil))
	mux := http.NewServeMux()
	path, calls := peerv1connect.NewPeerServiceHandler(&controlService{peers: p}, common,
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if open(spec.Procedure) {
				return []connect.HandlerOption{connect.WithReadMaxBytes(maxOpenBytes)}
			}
			if spec.StreamType == connect.StreamTypeUnary {
				return []connect.HandlerOption{connect.WithReadMaxBytes(maxCallBytes)}
			}
			return []connect.HandlerOption{connect.WithReadMaxBytes(maxPieceBytes)}
		}))
	mux.Handle(path, calls)
	mux.Handle(peerv1connect.PeerServiceLinkProcedure, connect.NewBidiStreamHandler(
		peerv1connect.PeerServiceLinkProcedure, p.link, common,
		connect.WithCodec(linkCodec{}), connect.WithReadMaxBytes(maxMessageBytes)))
	return p.Admit(mux)
}

// Admit wraps a handler of calls between nodes: it checks who calls, notes that
// the caller is heard, and answers with who is called. CallerOf names the
// caller inside.
func (p *Peers) Admit(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.hello().write(w.Header())
		s, err := p.admit(r)
		if err != nil {
			refuse.Write(w, r, p.encodeError(err))
			return
		}
		s.controller = http.NewResponseController(w)
		defer func() {
			s.mu.Lock()
			s.controller = nil
			s.mu.Unlock()
		}()
		ctx := context.WithValue(r.Context(), servedKey{}, s)
		r = r.WithContext(context.WithValue(ctx, helloKey{}, s.hello))
		if s.peer != nil {
			s.body = &heardBody{ReadCloser: r.Body, peer: s.peer}
			s.peer.touch()
			r.Body = s.body
		}
		next.ServeHTTP(w, r)
	})
}

// open says whether a call is answered whoever makes it: anyone of this version
// may Probe and ask for a pledge, and any start of a node to be vouched for.
func open(path string) bool {
	return slices.ContainsFunc([]string{
		peerv1connect.PeerServiceProbeProcedure, peerv1connect.PeerServicePledgeProcedure, peerv1connect.PeerServiceVouchProcedure,
	}, func(call string) bool { return strings.HasSuffix(path, call) })
}

// admit judges a request by its headers.
func (p *Peers) admit(r *http.Request) (*served, error) {
	h, err := readHello(r.Header)
	if err != nil {
		return nil, err
	}
	var node string
	node, h.Proven = network.CallerOf(r.Context())
	if err := identify(string(h.Node), node, h.Proven); err != nil {
		return nil, err
	}
	if to := r.Header.Get(headerTo); to != "" && to != string(p.opts.Self) {
		return nil, wrongNode(to, p.opts.Self)
	}
	if open(r.URL.Path) {
		return &served{hello: h}, nil
	}
	q, err := p.accept(h)
	if err != nil {
		return nil, err
	}
	return &served{hello: h, peer: q}, nil
}
