package certs_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/memnet"
)

// Handshakes with a peer that sends nothing or too little end after a bounded
// time, no matter who dials and with which deadline.
func TestHandshakesAreBoundedInTime(t *testing.T) {
	own := newCA(t)
	for _, said := range []string{"", "\x16", "\x16\x03\x01\x02\x00"} {
		synctest.Test(t, func(t *testing.T) {
			world := memnet.New()
			o := peerOptions(t, own.identity(member("n1")))
			o.Watch, o.Network = noWatch, world.Host("b")
			p := openPeers(t, o)
			l, err := world.Host("a").Listen(":1")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			silent := make(chan net.Conn, 1)
			go func() {
				conn, _ := l.Accept()
				io.WriteString(conn, said)
				silent <- conn
			}()
			if _, err := p.Dial(t.Context(), "a:1"); err == nil {
				t.Errorf("after %q there is a connection", said)
			}
			(<-silent).Close()
			if said == "" {
				return // the caller of Accept bounds the time until the first byte
			}
			go func() {
				conn, err := world.Host("b").Dial(t.Context(), "a:1")
				if err == nil {
					io.WriteString(conn, said)
				}
				silent <- conn
			}()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Accept(conn); err == nil {
				t.Errorf("after %q a connection is taken", said)
			}
			conn.Close()
			(<-silent).Close()
		})
	}
}

// After an authority was removed on either side, the connections of its nodes
// are closed within a minute. Others stay open.
func TestRemovedAuthorityClosesConnectionsOfNodes(t *testing.T) {
	for _, side := range []string{"serves", "dials"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, second := newCA(t), newCA(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				world := memnet.New()
				begin := func(i identity, host string) (*certs.Peers, certs.Files) {
					o := peerOptions(t, i)
					o.Watch, o.Network = noWatch, world.Host(host)
					p := openPeers(t, o)
					go p.Run(ctx)
					return p, o.Files
				}
				serves, served := begin(first.identity(member("n1"), second), "a")
				l, err := world.Host("a").Listen(":1")
				if err != nil {
					t.Fatal(err)
				}
				protocols := new(http.Protocols)
				protocols.SetUnencryptedHTTP2(true)
				server := &http.Server{ConnContext: serves.ConnContext, Protocols: protocols, Handler: serves.Wrap(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					fmt.Fprintln(w, q.Proto)
					w.(http.Flusher).Flush()
					if q.URL.Path == "/stream" {
						<-q.Context().Done()
					}
				}))}
				go server.Serve(opened{l, serves.Accept})
				defer server.Close()
				type caller struct {
					*http.Transport
					ended chan error
				}
				ask := func(c *caller, path string) (*http.Response, error) {
					q, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a:1"+path, nil)
					return c.RoundTrip(q)
				}
				start := func(p *certs.Peers) *caller {
					t.Helper()
					c := &caller{&http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return p.Dial(ctx, address) }}, make(chan error, 1)}
					t.Cleanup(c.CloseIdleConnections)
					res, err := ask(c, "/stream")
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						_, err := io.Copy(io.Discard, res.Body)
						c.ended <- err
					}()
					return c
				}
				old, oldFiles := begin(first.identity(member("n2"), second), "b")
				newer, _ := begin(second.identity(member("n3"), first), "c")
				leaves, stays := start(old), start(newer)
				switch side {
				case "serves": // it no longer trusts the first authority
					put(t, served.ClientCA, second.pem())
					if err := serves.Reload(); err != nil {
						t.Fatal(err)
					}
				case "dials":
					put(t, oldFiles.ClientCA, second.pem())
					if err := old.Reload(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(certs.Grace - time.Second)
				synctest.Wait()
				select {
				case err := <-leaves.ended:
					t.Errorf("cut without grace: %v", err)
				default:
				}
				time.Sleep(time.Minute - certs.Grace)
				synctest.Wait()
				select {
				case <-leaves.ended:
				default:
					t.Error("a connection lives a minute after its authority was removed")
				}
				if res, err := ask(leaves, "/"); err == nil {
					res.Body.Close()
					t.Error("another connection is made under the removed authority")
				}
				select {
				case err := <-stays.ended:
					t.Errorf("the other one was cut: %v", err)
				default:
				}
			})
		})
	}
}

// opened is a listener that passes each connection through open.
type opened struct {
	net.Listener
	open func(net.Conn) (net.Conn, error)
}

func (o opened) Accept() (net.Conn, error) {
	for {
		conn, err := o.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c, err := o.open(conn); err == nil {
			return c, nil
		}
		conn.Close()
	}
}
