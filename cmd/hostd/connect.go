package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
)

// defaultAddr is where a node listens unless it is told otherwise.
const defaultAddr = "http://127.0.0.1:7070"

// remote is the node that a client command talks to.
type remote struct {
	addr    string
	timeout time.Duration
	alive   int // place of the first address that answered
}

// addRemote gives a command the flags --addr and --timeout.
func addRemote(c *cobra.Command) *remote { return addRemoteFor(c, 10*time.Second) }

// addRemoteFor is addRemote for a command that takes its time.
func addRemoteFor(c *cobra.Command, timeout time.Duration) *remote {
	r := &remote{}
	addr := os.Getenv("HOSTD_ADDR")
	if addr == "" {
		addr = defaultAddr
	}
	c.Flags().StringVar(&r.addr, "addr", addr, "`address` of a node, or several with commas between them; HOSTD_ADDR sets it too")
	c.Flags().DurationVar(&r.timeout, "timeout", timeout, "`time` for the whole command, retries included")
	return r
}

// addrs returns the addresses of the nodes, from the one that answered on.
func (r *remote) addrs() []string {
	var out []string
	for _, a := range strings.Split(r.addr, ",") {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, a)
		}
	}
	return append(out[r.alive:len(out):len(out)], out[:r.alive]...)
}

// dial makes a client after seeing that something listens: the client's own
// patience is for clusters that are electing, not for those that are not there.
// Of several nodes the first that listens is asked first.
func (r *remote) dial(ctx context.Context) (*client.Client, error) {
	if r.timeout <= 0 {
		return nil, usagef("--timeout must be above zero")
	}
	if _, err := client.New(r.addrs(), client.Options{}); err != nil {
		return nil, &usageError{err}
	}
	var err error
	for i, a := range r.addrs() {
		if err = probe(ctx, a, min(r.timeout, 2*time.Second)); err == nil {
			r.alive = i
			return client.New(r.addrs(), client.Options{Timeout: r.timeout})
		}
	}
	return nil, hint(fmt.Errorf("no node answers at %s: %w", r.addr, err),
		"Start one with 'hostd dev', or name another with --addr or HOSTD_ADDR.")
}

// probe opens a connection to the address and closes it.
func probe(ctx context.Context, addr string, timeout time.Duration) error {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil {
		return err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// services are the calls that the Go client has no method for, at the first
// address that answered.
type services struct {
	entities entityv1connect.EntityServiceClient
	modules  modulev1connect.ModuleServiceClient
}

func (r *remote) services() services {
	addr := r.addrs()[0]
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	addr = strings.TrimSuffix(addr, "/")
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	return services{
		entities: entityv1connect.NewEntityServiceClient(http.DefaultClient, addr, plain),
		modules:  modulev1connect.NewModuleServiceClient(http.DefaultClient, addr, plain),
	}
}

// stream iterates over the answers to a server-streaming call; an error ends it.
func stream[Req, Res any](ctx context.Context, call func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), req *Req) iter.Seq2[*Res, error] {
	return func(yield func(*Res, error) bool) {
		s, err := call(ctx, connect.NewRequest(req))
		if err != nil {
			yield(nil, publicError(err))
			return
		}
		defer s.Close()
		for s.Receive() {
			if !yield(s.Msg(), nil) {
				return
			}
		}
		if err := s.Err(); err != nil {
			yield(nil, publicError(err))
		}
	}
}

// publicError gives an error of the RPC layer the form of the client's.
func publicError(err error) error {
	var wire *connect.Error
	if errors.As(err, &wire) {
		return &client.Error{Code: wire.Code(), Message: wire.Message()}
	}
	return err
}
