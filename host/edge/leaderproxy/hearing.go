package leaderproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// errSilent ends a call to a node that is suspected to have failed.
var errSilent = errors.New("no more heartbeats from the called node")

// hearing is like Telling, but the calls fail as soon as the node is suspected
// to have failed. Otherwise, a call to a node that has lost power or its
// network would wait until its deadline.
func (p *Proxy) hearing(c *http.Client, node sharding.NodeID) *http.Client {
	out := Telling(c)
	out.Transport = &hearer{next: out.Transport, nodes: p.nodes, node: node}
	return out
}

type hearer struct {
	next  http.RoundTripper
	nodes Nodes
	node  sharding.NodeID
}

// RoundTrip implements http.RoundTripper.
func (h *hearer) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			changed := h.nodes.Changed()
			if !h.nodes.Hears(h.node) {
				cancel(errSilent)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	over := sync.OnceFunc(func() {
		cancel(context.Canceled)
		<-ended
	})
	res, err := h.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = silence(ctx, err)
		over()
		return nil, err
	}
	res.Body = &heardBody{ReadCloser: res.Body, ctx: ctx, over: over}
	return res, nil
}

// silence replaces the error of a call by errSilent if the call was cancelled
// because its node is suspected.
func silence(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// heardBody is a response body whose reads fail when the node is suspected to
// have failed.
type heardBody struct {
	io.ReadCloser
	ctx  context.Context
	over func()
}

// Read implements io.Reader.
func (b *heardBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err != nil {
		if err != io.EOF {
			err = silence(b.ctx, err)
		}
		b.over()
	}
	return n, err
}

// Close implements io.Closer.
func (b *heardBody) Close() error {
	err := b.ReadCloser.Close()
	b.over()
	return err
}
