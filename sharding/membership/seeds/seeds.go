// Package seeds resolves the seeds in a node's configuration to addresses. It
// caches nothing, so each lookup uses the current DNS records. It never
// connects to a node, and its goroutines end with the lookup that started them.
package seeds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// SRV is the prefix of a seed whose hosts and ports come from the SRV records
// (RFC 2782) of the following name, such as srv+_hostd._tcp.example.com.
const SRV = "srv+"

// Limits of a seed.
const (
	maxBytes  = 256 // length of its text
	maxName   = 253 // length of a DNS name
	maxTarget = 64  // records per name; DNS puts the preferred ones first
	atOnce    = 16  // concurrent lookups
)

// ErrNone is returned if the name has no address.
var ErrNone = errors.New("the name resolves to no address")

// Lookup resolves names. The zero value uses the system's resolver.
type Lookup struct {
	// Host returns the IP addresses of a name; if nil, net.DefaultResolver is
	// used.
	Host func(ctx context.Context, name string) ([]string, error)
	// SRV returns the SRV records of a name, preferred ones first; if nil,
	// net.DefaultResolver is used.
	SRV func(ctx context.Context, name string) ([]*net.SRV, error)
}

// Check returns an error unless the seed is HOST:PORT, or the prefix SRV and a
// name.
func Check(seed string) error {
	if len(seed) > maxBytes {
		return fmt.Errorf("%.64q has more than %d bytes", seed, maxBytes)
	}
	if name, ok := strings.CutPrefix(seed, SRV); ok {
		if name == "" || len(name) > maxName || strings.ContainsAny(name, ":/ \t@[]") || strings.Contains(name, "..") || strings.HasPrefix(name, ".") {
			return fmt.Errorf("%.64q is not %sNAME, such as %s_hostd._tcp.example.com, without a port", seed, SRV, SRV)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(seed)
	if err != nil || host == "" {
		return fmt.Errorf("%.64q is not HOST:PORT", seed)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%.64q has no port between 1 and 65535", seed)
	}
	return nil
}

// Addresses returns the current addresses of a seed as IP address and port, in
// DNS order. If there are none, it returns ErrNone or the DNS error. If there
// are several hosts, hosts that cannot be resolved are skipped.
func (l Lookup) Addresses(ctx context.Context, seed string) ([]string, error) {
	name, ok := strings.CutPrefix(seed, SRV)
	if !ok {
		host, port, err := net.SplitHostPort(seed)
		if err != nil {
			return nil, err
		}
		return l.addressesOf(ctx, host, port)
	}
	records, err := l.srv(ctx, name)
	if err != nil {
		return nil, err
	}
	records = records[:min(len(records), maxTarget)]
	found, failed := concurrently(ctx, len(records), func(i int) ([]string, error) {
		host := strings.TrimSuffix(records[i].Target, ".")
		if host == "" || records[i].Port == 0 {
			return nil, nil // RFC 2782: the service is not available
		}
		return l.addressesOf(ctx, host, strconv.Itoa(int(records[i].Port)))
	})
	if out := slices.Concat(found...); len(out) > 0 {
		return out, nil
	}
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return nil, ErrNone
}

// AllAddresses resolves several seeds concurrently, see Addresses. The results
// and errors are in the order of the seeds. If ctx ends, seeds that are not
// resolved yet have its error, so that one name without an answer delays no
// other name.
func (l Lookup) AllAddresses(ctx context.Context, seeds []string) (found [][]string, failed []error) {
	return concurrently(ctx, len(seeds), func(i int) ([]string, error) { return l.Addresses(ctx, seeds[i]) })
}

// concurrently calls lookup for each index below n, at most atOnce times
// concurrently.
func concurrently(ctx context.Context, n int, lookup func(int) ([]string, error)) (found [][]string, failed []error) {
	found, failed = make([][]string, n), make([]error, n)
	slots := make(chan struct{}, atOnce)
	var lookups sync.WaitGroup
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			failed[i] = ctx.Err()
			continue
		}
		lookups.Go(func() {
			defer func() { <-slots }()
			found[i], failed[i] = lookup(i)
		})
	}
	lookups.Wait()
	return found, failed
}

// addressesOf returns the addresses of a host, each with the port.
func (l Lookup) addressesOf(ctx context.Context, host, port string) (out []string, err error) {
	found := []string{host}
	if net.ParseIP(host) == nil {
		if found, err = l.host(ctx, host); err != nil {
			return nil, err
		}
	}
	for _, a := range found {
		if ip := net.ParseIP(a); ip != nil {
			out = append(out, net.JoinHostPort(ip.String(), port))
		}
	}
	if len(out) == 0 {
		return nil, ErrNone
	}
	return out, nil
}

func (l Lookup) host(ctx context.Context, name string) ([]string, error) {
	if l.Host != nil {
		return l.Host(ctx, name)
	}
	return net.DefaultResolver.LookupHost(ctx, name)
}

func (l Lookup) srv(ctx context.Context, name string) ([]*net.SRV, error) {
	if l.SRV != nil {
		return l.SRV(ctx, name)
	}
	// If some records have invalid host names, LookupSRV returns the valid records
	// together with an error.
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
	if len(records) > 0 {
		return records, nil
	}
	return nil, err
}
