package main

import (
	"fmt"
	"net"
	"strconv"
)

// maxPortSteps bounds the search for free ports.
const maxPortSteps = 1000

// chooseAddrs returns an address for each of n nodes: the one given and those
// on the next free ports. Port 0 takes any free ones. A single node binds port
// 0 itself; several must know each other's beforehand.
func chooseAddrs(listen string, n int) ([]string, error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, usagef("--listen is %q, must be HOST:PORT", listen)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, usagef("--listen is %q, its port must be a number up to 65535", listen)
	}
	if n == 1 {
		return []string{listen}, nil
	}
	// Each is held until all are chosen, so that none is chosen twice.
	var out []string
	for steps := 0; len(out) < n; steps++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.FormatUint(port, 10)))
		if err != nil && (len(out) == 0 || port == 65535 || steps == maxPortSteps) {
			return nil, hint(fmt.Errorf("no free port for node n%d: %w", len(out)+1, err), "Choose another with --listen.")
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
