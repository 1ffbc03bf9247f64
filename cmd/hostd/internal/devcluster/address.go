package devcluster

import (
	"fmt"
	"net"
	"strconv"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// maxPortSteps bounds the search for free ports.
const maxPortSteps = 1000

// chooseAllAddrs returns where each of n nodes serves clients, and where it
// serves other nodes: on the next free ports after those. A single node finds
// the latter by itself.
func chooseAllAddrs(listen string, n int) (clients, peers []string, err error) {
	if n == 1 {
		clients, err = chooseAddrs(listen, 1)
		return clients, nil, err
	}
	all, err := chooseAddrs(listen, 2*n)
	if err != nil {
		return nil, nil, err
	}
	return all[:n], all[n:], nil
}

// chooseAddrs returns n addresses: the one given and those
// on the next free ports. Port 0 takes any free ones. A single node binds port
// 0 itself; several must know each other's beforehand.
func chooseAddrs(listen string, n int) ([]string, error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, cli.Usagef("--listen is %q, must be HOST:PORT", listen)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, cli.Usagef("--listen is %q, its port must be a number up to 65535", listen)
	}
	if n == 1 {
		return []string{listen}, nil
	}
	// Each is held until all are chosen, so that none is chosen twice.
	var out []string
	for steps := 0; len(out) < n; steps++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.FormatUint(port, 10)))
		if err != nil && (len(out) == 0 || port == 65535 || steps == maxPortSteps) {
			return nil, cli.Hint(fmt.Errorf("no free port for the nodes: %w", err), "Choose another with --listen.")
		}
		if err == nil {
			defer l.Close()
			out = append(out, l.Addr().String())
		}
		if port != 0 {
			port++
		}
	}
	return out, nil
}
