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

// A node listens on port defaultPort of this machine unless it is told
// otherwise.
const (
	defaultPort = "7070"
	defaultAddr = "127.0.0.1:" + defaultPort
)

// Remote is the node that a client command talks to.
type Remote struct {
	Addr    string
	Timeout time.Duration
	Files   TLSFiles
	// TokenFile holds the token that is sent with every call; empty is none.
	TokenFile string
	// InsecureToken has the token sent without TLS, wherever to.
	InsecureToken bool
	// Err gets warnings; nil drops them.
	Err     io.Writer
	context string      // that is named; empty is the current one, if any
	alive   int         // place of the first address that answered
	tls     *tls.Config // of Files, once Dial has read them
}

// AddRemote gives a command the flags --addr, --context and --timeout, and
// those of tokens and of TLS.
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

// SetTimeout says what --timeout is unless it is given, for a command that
// takes its time.
func SetTimeout(c *cobra.Command, timeout time.Duration) {
	f := c.Flags().Lookup("timeout")
	f.DefValue = timeout.String()
	if err := f.Value.Set(f.DefValue); err != nil {
		panic(err) // a duration is one
	}
}

// addrs returns the addresses of the nodes, from the one that answered on.
func (r *Remote) addrs() []string {
	var out []string
	for _, a := range strings.Split(r.Addr, ",") {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, withPort(a))
		}
	}
	return append(out[r.alive:len(out):len(out)], out[:r.alive]...)
}

// URLs are where the nodes are asked over plain HTTP, such as for metrics.
func (r *Remote) URLs() (out []string) {
	for _, a := range r.addrs() {
		if !strings.Contains(a, "://") {
			a = "http://" + a
		}
		out = append(out, a)
	}
	return out
}

// HTTPClient calls the nodes as the client of Dial does, without its token.
func (r *Remote) HTTPClient() *http.Client { return HTTPClient(r.tls) }

// withPort adds the port of nodes to an address that has none. One with a
// scheme keeps the scheme's port.
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

// Dial makes a client after seeing that something listens: the client's own
// patience is for clusters that are electing, not for those that are not there.
// Of several nodes the first that listens is asked first.
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
		return nil, Usagef("the token is not sent without TLS to %s, where everybody on the way can read it: give an address with https, or --insecure-token", insecure.Address)
	} else if err != nil {
		return nil, Usage(err)
	}
	if token != nil { // to fail before anything is called
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
		return nil, Hint(fmt.Errorf("no node can be called at %s: %w", r.Addr, err), next)
	}
	return nil, Hint(fmt.Errorf("no node answers at %s: %w", r.Addr, err),
		"Start one with 'hostd dev', or name another with --addr or HOSTD_ADDR.")
}

// baseURL is the URL of an address: https where TLS is asked for and the
// address does not say.
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

// probe opens a connection to the address and closes it. Over TLS it asks
// whether the node lives: a server refuses the certificate of a client after
// the client's part of the handshake.
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
			config = config.Clone() // the transport changes it
		}
		// HTTP/2 does not tell why a handshake failed.
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

// publicError gives an error of the RPC layer the form of the client's. Where
// the way to a node has broken, the codes that the layer makes up tell of what
// nobody did, a reset of canceled and a cut stream of internal: what became of
// the call is unknown then. ctx is that of the call.
func publicError(ctx context.Context, err error) error {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err
	}
	out := &client.Error{Code: wire.Code(), Message: wire.Message()}
	if connect.IsWireError(err) || ctx.Err() != nil {
		return out
	}
	dial, untrusted := (*net.OpError)(nil), (*tls.CertificateVerificationError)(nil)
	if errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &untrusted) {
		return &goneError{out} // it was never reached
	}
	switch cut := errors.Is(err, io.ErrUnexpectedEOF); {
	case cut, out.Code == connect.CodeCanceled, out.Code == connect.CodeUnknown, out.Code == connect.CodeUnavailable:
		out.Code, out.Message = connect.CodeUnknown, "the node went away before all was answered, and may have done what it was asked for; ask again: "+out.Message
		return &goneError{out}
	}
	return out
}

// goneError is the error of a call to a node that has ended, or is not reached.
type goneError struct{ error }

func (e *goneError) Unwrap() error { return e.error }
