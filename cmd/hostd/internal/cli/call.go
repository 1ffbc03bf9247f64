package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
)

// Session is a command's connection to the nodes while it runs. In addition to
// the client it has the services themselves, at the first node that answered,
// for calls that the client has no method for.
type Session struct {
	*client.Client
	EntityService   entityv1connect.EntityServiceClient
	ModuleService   modulev1connect.ModuleServiceClient
	ClusterService  clusterv1connect.ClusterServiceClient
	WorkflowService workflowv1connect.WorkflowServiceClient
	Std             Stdio
	Timeout         time.Duration // time limit of the whole command
	remote          *Remote
}

// Open opens a session. The caller must close it.
func (r *Remote) Open(ctx context.Context, std Stdio) (*Session, error) {
	c, err := r.Dial(ctx)
	if err != nil {
		return nil, err
	}
	s := NewSession(c, baseURL(r.addrs()[0], r.tls), std, r.Timeout)
	s.remote = r
	return s, nil
}

// NewSession returns a session that uses a client, with the services of the
// node at a URL. Closing the session closes the client.
func NewSession(c *client.Client, addr string, std Stdio, timeout time.Duration) *Session {
	plain := connect.WithAcceptCompression("gzip", nil, nil)
	return &Session{
		Client: c, Std: std, Timeout: timeout,
		EntityService:   entityv1connect.NewEntityServiceClient(c.HTTPClient(), addr, plain),
		ModuleService:   modulev1connect.NewModuleServiceClient(c.HTTPClient(), addr, plain),
		ClusterService:  clusterv1connect.NewClusterServiceClient(c.HTTPClient(), addr, plain),
		WorkflowService: workflowv1connect.NewWorkflowServiceClient(c.HTTPClient(), addr, plain),
	}
}

// Reopen connects the session to the next node that answers, which may be the
// current one. If none answers, the session does not change. Calls in progress
// end. Reopen works only for sessions that Open returned.
func (s *Session) Reopen(ctx context.Context) error {
	was := s.remote.alive
	s.remote.alive = (was + 1) % len(s.remote.addrs())
	fresh, err := s.remote.Open(ctx, s.Std)
	if err != nil {
		s.remote.alive = was
		return err
	}
	s.Client.Close()
	*s = *fresh
	return nil
}

// Remark is an optional interface of an answer. After the answer is printed,
// Remark returns a line for standard error, and an error if the answer itself
// is a failure.
type Remark interface {
	Remark() (line string, failure error)
}

// Ask returns a command that asks nodes for something and prints the answer as
// JSON or as text writes it. An error of ask gets the command's verb as a
// prefix. If --timeout is set, it bounds the whole command; otherwise only each
// call has a limit.
func Ask[V any](std Stdio, use, short string, least, most int,
	ask func(ctx context.Context, s *Session, args []string) (V, error), text func(w io.Writer, v V)) *cobra.Command {
	var out *Output
	var c *cobra.Command
	c = Talk(std, use, short, least, most, func(ctx context.Context, s *Session, args []string) error {
		if c.Flags().Changed("timeout") {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.Timeout)
			defer cancel()
		}
		v, err := ask(ctx, s, args)
		if err != nil {
			return err
		}
		if err := out.Print(v, func(w io.Writer) { text(w, v) }); err != nil {
			return err
		}
		remark, ok := any(v).(Remark)
		if !ok {
			return nil
		}
		line, failure := remark.Remark()
		if line != "" {
			fmt.Fprintln(std.Err, line)
		}
		return failure
	})
	out = AddOutput(c, std)
	return c
}

// Look is Ask for a command that changes nothing: if the node does not
// answer, it asks the next node, see Anywhere.
func Look[V any](std Stdio, use, short string, least, most int,
	ask func(ctx context.Context, s *Session, args []string) (V, error), text func(w io.Writer, v V)) *cobra.Command {
	return Ask(std, use, short, least, most, func(ctx context.Context, s *Session, args []string) (V, error) {
		return Anywhere(ctx, s, func(ctx context.Context) (V, error) { return ask(ctx, s, args) })
	}, text)
}

// Anywhere calls ask with the services of a session. If the node has ended or
// cannot be reached, it starts again at the next node, once for each node. ask
// must be idempotent.
func Anywhere[V any](ctx context.Context, s *Session, ask func(ctx context.Context) (V, error)) (V, error) {
	for left := s.others(); ; left-- {
		v, err := ask(ctx)
		if gone := (*goneError)(nil); left <= 0 || ctx.Err() != nil || !errors.As(err, &gone) {
			return v, err
		}
		was := s.remote.addrs()[0]
		if failed := s.Reopen(ctx); failed != nil {
			return v, err
		}
		fmt.Fprintf(s.Std.Err, "%s does not answer, trying %s\n", was, s.remote.addrs()[0])
	}
}

// others returns how many other nodes a session may try.
func (s *Session) others() int {
	if s.remote == nil {
		return 0
	}
	return len(s.remote.addrs()) - 1
}

// Order returns a command that makes nodes do something and prints no data: the
// text that give returns is printed on standard error. --timeout bounds all of
// it.
func Order(std Stdio, use, short string, least, most int, give func(ctx context.Context, s *Session, args []string) (done string, err error)) *cobra.Command {
	return Talk(std, use, short, least, most, func(ctx context.Context, s *Session, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		done, err := give(ctx, s, args)
		if err == nil && done != "" {
			fmt.Fprintln(std.Err, done)
		}
		return err
	})
}

// Follow returns a command that prints the items of a stream, one per line, as
// JSON or as text formats them. If endless returns true, the end of ctx
// interrupts the stream, which is not a failure.
func Follow[V any](std Stdio, use, short string, least, most int, endless func() bool,
	open func(ctx context.Context, s *Session, args []string) iter.Seq2[V, error], text func(v V) string) *cobra.Command {
	var out *Output
	c := Talk(std, use, short, least, most, func(ctx context.Context, s *Session, args []string) error {
		return Lines(ctx, out, endless(), open(ctx, s, args), text)
	})
	out = AddOutput(c, std)
	return c
}

// Lines prints the items of a stream. The end of ctx is a failure unless the
// stream is endless.
func Lines[V any](ctx context.Context, out *Output, endless bool, stream iter.Seq2[V, error], text func(v V) string) error {
	for v, err := range stream {
		switch {
		case err != nil && endless && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := out.Line(v, text(v)); err != nil {
			return err
		}
	}
	return nil
}

// Always is the endless argument of Follow for a stream that never ends by
// itself.
func Always() bool { return true }

// Talk returns a command that opens a session and calls do. An error gets the
// command's verb as a prefix.
func Talk(std Stdio, use, short string, least, most int, do func(ctx context.Context, s *Session, args []string) error) *cobra.Command {
	var r *Remote
	c := Leaf(use, short, least, most, func(ctx context.Context, c *cobra.Command, args []string) error {
		s, err := r.Open(ctx, std)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := do(ctx, s, args); err != nil {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
		return nil
	})
	r = AddRemote(c)
	completeArgs(c, r)
	return c
}

// Unary makes a unary call of a service, within the timeout of the command.
func Unary[Req, Res any](ctx context.Context, s *Session, call func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	res, err := call(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, publicError(ctx, err)
	}
	return res.Msg, nil
}

// Stream iterates over the responses of a server-streaming call; an error ends
// it.
func Stream[Req, Res any](ctx context.Context, call func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), req *Req) iter.Seq2[*Res, error] {
	return func(yield func(*Res, error) bool) {
		s, err := call(ctx, connect.NewRequest(req))
		if err != nil {
			yield(nil, publicError(ctx, err))
			return
		}
		defer s.Close()
		for s.Receive() {
			if !yield(s.Msg(), nil) {
				return
			}
		}
		if err := s.Err(); err != nil {
			yield(nil, publicError(ctx, err))
		}
	}
}

// NodeEnded reports whether a failed stream may be continued at another node.
func NodeEnded(err error) bool {
	switch client.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal, connect.CodeAborted, connect.CodeDeadlineExceeded:
		return true
	}
	return false
}
