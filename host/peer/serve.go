package peer

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/gen/hostd/peer/v1/peerv1connect"
	"github.com/hostd/hostd/host/network"
)

const servicePath = "/" + peerv1connect.PeerServiceName + "/"

// Bounds of messages other than those of links.
const (
	maxCallBytes  = 4 << 20
	maxOpenBytes  = 1 << 10   // size of the request of a call that anyone may make
	maxHeadBytes  = 64 << 10  // size of a snapshot's header
	maxChunkBytes = 256 << 10 // size of a chunk of a snapshot or a module
	maxPieceBytes = maxChunkBytes + maxHeadBytes + 64
)

// noCompression disables compression on both sides. Large data is already
// compressed or random, and decompression would cost the receiver far more than
// the sender.
var noCompression = connect.WithAcceptCompression("gzip", nil, nil)

// newHandler returns the service behind the check of the caller.
func (p *Peers) newHandler() http.Handler {
	common := connect.WithHandlerOptions(connect.WithCompression("gzip", nil, nil))
	mux := http.NewServeMux()
	path, calls := peerv1connect.NewPeerServiceHandler(&controlService{peers: p}, common, connect.WithInterceptors(p.opts.Around...),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if needs[spec.Procedure] == needNothing {
				return []connect.HandlerOption{connect.WithReadMaxBytes(maxOpenBytes)}
			}
			if spec.StreamType == connect.StreamTypeUnary {
				return []connect.HandlerOption{connect.WithReadMaxBytes(maxCallBytes)}
			}
			return []connect.HandlerOption{connect.WithReadMaxBytes(maxPieceBytes)}
		}))
	mux.Handle(path, calls)
	overHTTP2 := connect.NewBidiStreamHandler(
		peerv1connect.PeerServiceLinkProcedure, p.link, common,
		connect.WithCodec(linkCodec{}), connect.WithReadMaxBytes(maxMessageBytes))
	mux.HandleFunc(peerv1connect.PeerServiceLinkProcedure, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 {
			p.linkOverHTTP1(w, r)
		} else {
			overHTTP2.ServeHTTP(w, r)
		}
	})
	return p.Admit(mux)
}

// Admit wraps a handler of calls between nodes. It checks the caller, records a
// sign of life, and answers with this node's hello. In the handler, CallerOf
// returns the caller. Calls of the peer service require what the table needs
// lists for them; all other calls require a member.
func (p *Peers) Admit(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.hello().write(w.Header())
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		s := &served{controller: http.NewResponseController(w), cancel: cancel}
		if err := p.admit(r, s); err != nil {
			p.opts.Observer.PeerRefused(r, s.hello.Node, err)
			refuse.Write(w, r, p.encodeError(err))
			return
		}
		defer func() {
			s.mu.Lock()
			s.controller = nil
			s.mu.Unlock()
		}()
		ctx = context.WithValue(ctx, servedKey{}, s)
		r = r.WithContext(context.WithValue(ctx, helloKey{}, s.hello))
		if s.peer != nil {
			defer s.peer.removeCall(s)
			s.body = &observedBody{ReadCloser: r.Body, peer: s.peer, of: s}
			// A link is registered before its first byte counts. Otherwise the
			// node is alive without a link for a moment, in which a refused
			// dial would report its end again.
			if r.URL.Path != peerv1connect.PeerServiceLinkProcedure {
				s.peer.touch()
			}
			r.Body = s.body
		}
		next.ServeHTTP(w, r)
	})
}

// admit checks a request by its headers. If the calling node must be known,
// admit also registers the call with that node.
func (p *Peers) admit(r *http.Request, s *served) error {
	h, err := readHello(r.Header)
	if err != nil {
		return err
	}
	var node string
	node, h.Proven = network.CallerOf(r.Context())
	if err := identify(string(h.Node), node, h.Proven); err != nil {
		return err
	}
	s.hello = h
	if to := r.Header.Get(headerTo); to != "" && to != string(p.opts.Self) {
		return wrongNode(to, p.opts.Self)
	}
	need := needs[r.URL.Path]
	if need == needNothing {
		return nil
	}
	if err := p.checkHello(h); err != nil {
		return err
	}
	if need == needMember {
		if err := p.isMember(r.Context(), h); err != nil {
			return err
		}
	}
	if s.peer, err = p.meet(h); err != nil {
		return err
	}
	// If the node is put down after this line, Sever finds the call. If it was
	// put down before, the second check notices that.
	s.peer.addCall(s)
	if now := p.standing(h); now == StandingPutDown || need == needMember && now != StandingMember {
		s.peer.removeCall(s)
		return fmt.Errorf("%w: the metadata of node %s changed during the call", ErrUnavailable, h.Node)
	}
	return nil
}
