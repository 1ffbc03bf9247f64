package seeds_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hostd/hostd/sharding/membership/seeds"
)

func TestInvalidSeedsAreRejected(t *testing.T) {
	for _, good := range []string{
		"a:1", "10.0.0.1:7071", "[::1]:7071", "nodes.example.com:7071",
		"srv+_hostd._tcp.example.com", "srv+_hostd._tcp.example.com.", "srv+nodes",
	} {
		if err := seeds.Check(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "a", ":1", "a:0", "a:65536", "a:http", strings.Repeat("a", 300) + ":1",
		"srv+", "srv+_hostd._tcp.example.com:7071", "srv+a b", "srv+a..b", "srv+.a", "srv+" + strings.Repeat("a", 254), "srv+//a",
	} {
		if err := seeds.Check(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

// directory is an in-memory DNS.
type directory struct {
	hosts   map[string][]string
	records map[string][]*net.SRV
}

var errUnknown = errors.New("no such host")

func (d directory) lookup() seeds.Lookup {
	return seeds.Lookup{
		Host: func(_ context.Context, name string) ([]string, error) {
			if found, ok := d.hosts[name]; ok {
				return found, nil
			}
			return nil, errUnknown
		},
		SRV: func(_ context.Context, name string) ([]*net.SRV, error) {
			if found, ok := d.records[name]; ok {
				return found, nil
			}
			return nil, errUnknown
		},
	}
}

func TestSeedsResolveToAddresses(t *testing.T) {
	var many []*net.SRV
	for i := range 100 {
		many = append(many, &net.SRV{Target: fmt.Sprintf("10.0.1.%d.", i), Port: 7071})
	}
	d := directory{
		hosts: map[string][]string{
			"headless":  {"10.0.0.1", "10.0.0.2", "fd00::3"},
			"n1.sample": {"10.0.0.1"},
			"n2.sample": {"10.0.0.2", "10.0.0.3"},
			"nowhere":   {},
		},
		records: map[string][]*net.SRV{
			"_hostd._tcp.sample": {{Target: "n2.sample.", Port: 7171, Priority: 1}, {Target: "n1.sample.", Port: 7071, Priority: 2}},
			"partly":             {{Target: "gone.sample.", Port: 1}, {Target: "n1.sample", Port: 7071}},
			"gone":               {{Target: "gone.sample.", Port: 1}},
			"without":            {{Target: ".", Port: 1}, {Target: "n1.sample.", Port: 0}},
			"empty":              {},
			"many":               many,
		},
	}
	for _, tt := range []struct {
		seed string
		want []string
		err  error
	}{
		{"10.9.9.9:1", []string{"10.9.9.9:1"}, nil},
		{"headless:7071", []string{"10.0.0.1:7071", "10.0.0.2:7071", "[fd00::3]:7071"}, nil},
		{"unknown:7071", nil, errUnknown},
		{"nowhere:7071", nil, seeds.ErrNone},
		{"srv+_hostd._tcp.sample", []string{"10.0.0.2:7171", "10.0.0.3:7171", "10.0.0.1:7071"}, nil},
		{"srv+partly", []string{"10.0.0.1:7071"}, nil},
		{"srv+gone", nil, errUnknown},
		{"srv+without", nil, seeds.ErrNone},
		{"srv+empty", nil, seeds.ErrNone},
		{"srv+unknown", nil, errUnknown},
	} {
		got, err := d.lookup().Addresses(t.Context(), tt.seed)
		if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v", tt.seed, got, err)
		}
	}
	if got, err := d.lookup().Addresses(t.Context(), "srv+many"); len(got) != 64 || got[0] != "10.0.1.0:7071" || err != nil {
		t.Errorf("of many: %d, %v", len(got), err)
	}
}

// At most 16 seeds are resolved at a time. Seeds that are not resolved when the
// context ends fail with the context's error.
func TestConcurrentLookupsAreLimited(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("s%d.test:7", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var now, most atomic.Int32
	look := seeds.Lookup{Host: func(ctx context.Context, _ string) ([]string, error) {
		if n := now.Add(1); n > most.Load() {
			if most.Store(n); n == 16 {
				cancel()
			}
		}
		defer now.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	found, failed := look.AllAddresses(ctx, append([]string{"127.0.0.1:7"}, names...))
	if got := most.Load(); got != 16 {
		t.Errorf("%d lookups at a time", got)
	}
	if !slices.Equal(found[0], []string{"127.0.0.1:7"}) || failed[0] != nil {
		t.Errorf("an address: %v, %v", found[0], failed[0])
	}
	for i, err := range failed[1:] {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", names[i], err)
		}
	}
}
