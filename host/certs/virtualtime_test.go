package certs_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/tests/support/memnet"
)

// noWatch simulates a machine without file notifications.
func noWatch([]string) (certs.Watch, error) { return nil, errors.New("no notifications") }

// Without notifications, the files are read once a minute.
func TestFilesArePolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newCA(t)
		f := files(t)
		f.ClientCA = ""
		cert, key := own.issue(node())
		putPair(t, f, cert, key)
		var l logs
		r := open(t, certs.Options{Files: f, Logger: l.logger(), Watch: noWatch})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.Run(ctx); close(ended) }()
		in := func() string {
			c, err := r.Config().GetConfigForClient(&tls.ClientHelloInfo{})
			if err != nil {
				t.Fatal(err)
			}
			return c.Certificates[0].Leaf.SerialNumber.String()
		}
		before := in()
		cert, key = own.issue(node())
		putPair(t, f, cert, key)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if in() != before {
			t.Error("the files were read before a minute was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if in() == before {
			t.Error("the files were not read after a minute")
		}
		if l.count("checking them once a minute") != 1 {
			t.Error("that there are no notifications is not told")
		}
		cancel()
		<-ended
	})
}

// After an authority was removed, the connections and streams of its clients
// are closed within a minute. No call that can be retried is lost, and other
// connections stay open.
func TestRemovedAuthorityClosesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newCA(t), newCA(t)
		f := files(t)
		cert, key := first.issue(node())
		putPair(t, f, cert, key)
		put(t, f.ClientCA, append(first.pem(), second.pem()...))
		r := open(t, certs.Options{Files: f, ClientAuth: tls.VerifyClientCertIfGiven, Watch: noWatch})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		world := memnet.New()
		l, err := world.Host("a").Listen(":1")
		if err != nil {
			t.Fatal(err)
		}
		address := serve(t, r, l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			fmt.Fprintln(w, q.Proto)
			w.(http.Flusher).Flush()
			if q.URL.Path == "/stream" {
				<-q.Context().Done()
			}
		}))
		b := world.Host("b")
		transport := func(config *tls.Config) (*http.Transport, *int) {
			dials := new(int)
			config.ServerName = "a"
			tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				*dials++
				return b.Dial(ctx, address)
			}}
			t.Cleanup(tr.CloseIdleConnections)
			return tr, dials
		}
		type caller struct {
			*http.Transport
			dials  *int
			ended  chan error
			stream *http.Response
		}
		begin := func(config *tls.Config) *caller {
			t.Helper()
			tr, dials := transport(config)
			c := &caller{Transport: tr, dials: dials, ended: make(chan error, 1)}
			q, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://a/stream", nil)
			if c.stream, err = tr.RoundTrip(q); err != nil {
				t.Fatal(err)
			}
			go func() {
				lines := bufio.NewScanner(c.stream.Body)
				for lines.Scan() {
				}
				c.ended <- lines.Err()
			}()
			return c
		}
		ask := func(c *caller) error {
			q, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://a/", nil)
			res, err := c.RoundTrip(q)
			if err == nil {
				res.Body.Close()
			}
			return err
		}
		bob := certs.Request{Name: "bob"}
		old, stays, nobody := begin(first.client(&first, bob)), begin(first.client(&second, bob)), begin(first.client(nil, bob))
		put(t, f.ClientCA, second.pem())
		if err := r.Reload(); err != nil {
			t.Fatal(err)
		}
		// The client uses a trusted certificate for new connections. Its calls
		// are answered on the old connection until that connection is
		// closed, and then on a new connection.
		rolled := first.client(&second, bob)
		old.TLSClientConfig.Certificates = rolled.Certificates
		for range 5 {
			if err := ask(old); err != nil {
				t.Errorf("a call in the time of grace: %v", err)
			}
			synctest.Wait()
		}
		if *old.dials != 2 {
			t.Errorf("the client has dialed %d times, wanted 2: it was not asked to go", *old.dials)
		}
		time.Sleep(certs.Grace - time.Second)
		synctest.Wait()
		select {
		case <-old.ended:
			t.Error("a stream was cut without grace")
		default:
		}
		time.Sleep(time.Minute - certs.Grace)
		synctest.Wait()
		select {
		case <-old.ended:
		default:
			t.Error("a stream lives a minute after its authority was removed")
		}
		for name, c := range map[string]*caller{"of the other authority": stays, "without a certificate": nobody} {
			select {
			case err := <-c.ended:
				t.Errorf("a stream %s was cut: %v", name, err)
			default:
			}
			if err := ask(c); err != nil || *c.dials != 1 {
				t.Errorf("a caller %s: %v after %d dials", name, err, *c.dials)
			}
		}
		stranger, _ := transport(first.client(&first, bob))
		if err := ask(&caller{Transport: stranger}); err == nil {
			t.Error("a certificate of the removed authority opens a connection")
		}
	})
}
