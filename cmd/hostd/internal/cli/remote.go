package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// By default a node listens on port defaultPort of this machine.
const (
	defaultPort = "7070"
	defaultAddr = "127.0.0.1:" + defaultPort
)

// Remote is the node that a client command calls.
type Remote struct {
	Addr    string
	Timeout time.Duration
	Files   TLSFiles
	// TokenFile is the file of the token that is sent with every call; empty
	// sends none.
	TokenFile string
	// InsecureToken allows sending the token without TLS to any machine.
	InsecureToken bool
	// Err receives warnings; nil discards them.
	Err     io.Writer
	context string      // named context; empty means the current one, if any
	alive   int         // index of the first address that answered
	tls     *tls.Config // from Files, once Dial has read them
}

// AddRemote adds the flags --addr, --context and --timeout, and the token and
// TLS flags, to a command.
func AddRemote(c *cobra.Command) *Remote {
	r := &Remote{}
	addr := os.Getenv("HOSTD_ADDR")
	if addr == "" {
		addr = defaultAddr
	}
	c.Flags().StringVar(&r.Addr, "addr", addr, "comma-separated `addresses` of nodes to connect to; env HOSTD_ADDR")
	r.Files.AddFlags(c)
	AddTokenFile(c, &r.TokenFile, &r.InsecureToken)
	addContext(c, r)
	c.Flags().DurationVar(&r.Timeout, "timeout", 10*time.Second, "maximum `time` for the whole command, including retries")
	Before(c, func([]string) error {
		r.Err = c.ErrOrStderr()
		return nil
	})
	return r
}

// SetTimeout sets the default of --timeout, for a slow command.
func SetTimeout(c *cobra.Command, timeout time.Duration) {
	f := c.Flags().Lookup("timeout")
	f.DefValue = timeout.String()
	if err := f.Value.Set(f.DefValue); err != nil {
		panic(err) // a duration always parses
	}
}

// addrs returns the addresses of the nodes, starting with the node that
// answered.
func (r *Remote) addrs() []string {
	var out []string
	for _, a := range strings.Split(r.Addr, ",") {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, withPort(a))
		}
	}
	return append(out[r.alive:len(out):len(out)], out[:r.alive]...)
}

// URLs returns the URLs of the nodes for plain HTTP, such as for metrics.
func (r *Remote) URLs() (out []string) {
	for _, a := range r.addrs() {
		if !strings.Contains(a, "://") {
			a = "http://" + a
		}
		out = append(out, a)
	}
	return out
}

// HTTPClient calls nodes as the client of Dial does, but without its token.
func (r *Remote) HTTPClient() *http.Client { return HTTPClient(r.tls) }

// withPort adds the default port to an address without one. An address with a
// scheme has the scheme's port.
func withPort(addr string) string {
	if strings.Contains(addr, "://") {
		return addr
	}
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	if host := strings.Trim(addr, "[]"); host == addr && strings.Count(addr, ":") != 1 || "["+host+"]" == addr {
		return net.JoinHostPort(host, defaultPort)
	}
	return addr
}

// Dial returns a client, after it has checked that a node listens: the client's
// own retries are for clusters in an election, not for nodes that do not exist.
// The client calls the first node that listens.
func (r *Remote) Dial(ctx context.Context) (*client.Client, error) {
	if r.Timeout <= 0 {
		return nil, Usagef("--timeout must be above zero")
	}
	reading, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	config, err := r.Files.Config(reading)
	if err != nil {
		return nil, Usage(err)
	}
	r.tls = config
	opts := client.Options{Timeout: r.Timeout, TLS: config, InsecureToken: r.InsecureToken}
	var token *tokenFile
	if r.TokenFile != "" {
		token = newTokenFile(r.TokenFile)
		opts.TokenSource = token.Token
	}
	var insecure *client.InsecureTokenError
	if _, err := client.New(r.addrs(), opts); errors.As(err, &insecure) {
		return nil, Usagef("refusing to send the token to %s without TLS, because everybody on the network path could read it: use an https address, or set --insecure-token", insecure.Address)
	} else if err != nil {
		return nil, Usage(err)
	}
	if token != nil { // fail before any call
		if _, err := token.Token(reading); err != nil {
			return nil, Usage(err)
		}
		if r.Err != nil {
			warnOpen(r.Err, r.TokenFile)
		}
	}
	addrs := r.addrs()
	for i, a := range addrs {
		if err = probe(ctx, a, config, min(r.Timeout, 2*time.Second)); err == nil {
			r.alive = (r.alive + i) % len(addrs)
			return client.New(r.addrs(), opts)
		}
	}
	if next := hintTLS(err); next != "" {
		return nil, Hint(fmt.Errorf("cannot call a node at %s: %w", r.Addr, err), next)
	}
	return nil, Hint(fmt.Errorf("no node answers at %s: %w", r.Addr, err),
		"Start one with 'hostd dev', or set a different address with --addr or HOSTD_ADDR.")
}

// baseURL returns the URL of an address: https if TLS is configured and the
// address has no scheme.
func baseURL(addr string, config *tls.Config) string {
	switch {
	case strings.Contains(addr, "://"):
	case config != nil:
		addr = "https://" + addr
	default:
		addr = "http://" + addr
	}
	return strings.TrimSuffix(addr, "/")
}

// probe opens a connection to the address and closes it. Over TLS it makes a
// health request, because a server rejects a client certificate only after the
// client has finished its handshake.
func probe(ctx context.Context, addr string, config *tls.Config, timeout time.Duration) error {
	base := baseURL(addr, config)
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	if u.Scheme == "https" {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ask, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/livez", nil)
		if err != nil {
			return err
		}
		if config != nil {
			config = config.Clone() // the transport modifies it
		}
		// HTTP/2 does not report why a handshake failed.
		asker := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		defer asker.CloseIdleConnections()
		res, err := asker.Do(ask)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// publicError converts an error of the RPC layer to an error of the client.
// If the connection broke, the layer makes up a misleading code: canceled
// for a reset and internal for a truncated stream. The outcome of the call
// is unknown then. ctx is the context of the call.
func publicError(ctx context.Context, err error) error {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err
	}
	if connect.IsWireError(err) {
		return client.FromConnect(err)
	}
	out := &client.Error{Code: wire.Code(), Message: wire.Message()}
	if ctx.Err() != nil {
		return out
	}
	dial, untrusted := (*net.OpError)(nil), (*tls.CertificateVerificationError)(nil)
	if errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &untrusted) {
		return &goneError{out} // the node was never reached
	}
	switch cut := errors.Is(err, io.ErrUnexpectedEOF); {
	case cut, out.Code == connect.CodeCanceled, out.Code == connect.CodeUnknown, out.Code == connect.CodeUnavailable:
		out.Code, out.Message = connect.CodeUnknown, "the connection broke before the response was complete, and the call may have taken effect; check, then retry: "+out.Message
		return &goneError{out}
	}
	return out
}

// goneError is the error of a call to a node that has ended or cannot be
// reached.
type goneError struct{ error }

func (e *goneError) Unwrap() error { return e.error }
