package seeds_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hostd/hostd/sharding/membership/seeds"
)

// serveDNS answers SRV and A queries until the test ends, and returns a
// resolver that uses only this server.
func serveDNS(t *testing.T, records map[string][]dnsmessage.SRVResource, hosts map[string][4]byte) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		conn.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(buf[:n]); err != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			name := strings.TrimSuffix(q.Name.String(), ".")
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions}
			head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 1}
			address, known := hosts[name]
			switch {
			case q.Type == dnsmessage.TypeSRV && records[name] != nil:
				for _, r := range records[name] {
					answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: head, Body: &r})
				}
			case q.Type == dnsmessage.TypeA && known:
				answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: address}})
			case !known:
				answer.RCode = dnsmessage.RCodeNameError
			}
			packed, err := answer.Pack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.WriteTo(packed, from) // the client retries
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// A seed resolves to its DNS records in order of priority.
func TestSRVRecordsAreResolvedByPriority(t *testing.T) {
	target := func(host string, port, priority uint16) dnsmessage.SRVResource {
		return dnsmessage.SRVResource{Target: dnsmessage.MustNewName(host), Port: port, Priority: priority}
	}
	r := serveDNS(t, map[string][]dnsmessage.SRVResource{
		"_hostd._tcp.seeds.test": {target("n2.seeds.test.", 7171, 20), target("n1.seeds.test.", 7071, 10), target("gone.seeds.test.", 7071, 5)},
	}, map[string][4]byte{"n1.seeds.test": {127, 0, 0, 11}, "n2.seeds.test": {127, 0, 0, 12}})
	look := seeds.Lookup{
		Host: r.LookupHost,
		SRV: func(ctx context.Context, name string) ([]*net.SRV, error) {
			_, found, err := r.LookupSRV(ctx, "", "", name)
			return found, err
		},
	}
	got, err := look.Addresses(t.Context(), "srv+_hostd._tcp.seeds.test")
	if want := []string{"127.0.0.11:7071", "127.0.0.12:7171"}; !slices.Equal(got, want) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := look.Addresses(t.Context(), "n2.seeds.test:99"); !slices.Equal(got, []string{"127.0.0.12:99"}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := look.Addresses(t.Context(), "srv+_other._tcp.seeds.test"); err == nil {
		t.Errorf("a name without records has %q", got)
	}
}
