// Package seeds finds the nodes that a cluster is entered through: what a
// configuration names, as addresses. It keeps nothing, so each look goes by
// what DNS says then. It never connects to a node; its goroutines end with the
// look that started them.
package seeds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
)

// SRV begins a seed whose hosts and ports are in DNS, as the records SRV of the
// name that follows (RFC 2782), such as srv+_hostd._tcp.example.com.
const SRV = "srv+"

// Bounds of a seed.
const (
	maxBytes  = 256 // of its text
	maxName   = 253 // bytes of a name of DNS
	maxTarget = 64  // records of a name, those that DNS puts first
	atOnce    = 16  // names that are looked up at the same time
)

// ErrNone: the name has no address.
var ErrNone = errors.New("the name has no address")

// Lookup asks DNS. The zero value asks as the system is configured.
type Lookup struct {
	// Host returns the IP addresses of a name; net.DefaultResolver's when nil.
	Host func(ctx context.Context, name string) ([]string, error)
	// SRV returns the records of a name, those first that are to be tried
	// first; net.DefaultResolver's when nil.
	SRV func(ctx context.Context, name string) ([]*net.SRV, error)
}

// Check refuses what is no seed: it is HOST:PORT, or SRV and a name.
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
		return fmt.Errorf("%.64q has no port from 1 to 65535", seed)
	}
	return nil
}

// Addresses returns where the nodes of a seed are now, each an IP address and a
// port, in the order of DNS. A name without any is ErrNone, or what DNS said;
// one of several hosts that is not known is passed over.
func (l Lookup) Addresses(ctx context.Context, seed string) ([]string, error) {
	name, ok := strings.CutPrefix(seed, SRV)
	if !ok {
		host, port, err := net.SplitHostPort(seed)
		if err != nil {
			return nil, err
		}
		return l.of(ctx, host, port)
	}
	records, err := l.srv(ctx, name)
	if err != nil {
		return nil, err
	}
	records = records[:min(len(records), maxTarget)]
	found := make([][]string, len(records))
	failed := make([]error, len(records))
	slots := make(chan struct{}, atOnce)
	var looks sync.WaitGroup
	for i, r := range records {
		host := strings.TrimSuffix(r.Target, ".")
		if host == "" || r.Port == 0 {
			continue // RFC 2782: there is no such service
		}
		slots <- struct{}{}
		looks.Go(func() {
			defer func() { <-slots }()
			found[i], failed[i] = l.of(ctx, host, strconv.Itoa(int(r.Port)))
		})
	}
	looks.Wait()
	var out []string
	for _, addresses := range found {
		out = append(out, addresses...)
	}
	if len(out) > 0 {
		return out, nil
	}
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return nil, ErrNone
}

// of returns the addresses of a host, each with the port.
func (l Lookup) of(ctx context.Context, host, port string) (out []string, err error) {
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
	// Records whose hosts are no names come with an error, beside the others.
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
	if len(records) > 0 {
		return records, nil
	}
	return nil, err
}
