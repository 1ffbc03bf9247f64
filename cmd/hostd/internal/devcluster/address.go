package devcluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// maxPortSteps limits the search for free ports.
const maxPortSteps = 1000

// chosen are addresses of nodes. Their ports are reserved until they are
// released.
type chosen struct {
	clients []string
	peers   []string // addresses for other nodes, if there are several nodes; a single node chooses its own
	holds   []io.Closer
}

// release releases the ports.
func (c *chosen) release() error {
	var faults []error
	for _, h := range c.holds {
		faults = append(faults, h.Close())
	}
	c.holds = nil
	return errors.Join(faults...)
}

// choose returns, for each of n nodes, its address for clients and its address
// for other nodes. The latter use the next free ports after the clients' ports.
func choose(listen string, n int) (*chosen, error) {
	all := n
	if n > 1 {
		all = 2 * n
	}
	addrs, holds, err := chooseAddrs(listen, all)
	if err != nil {
		return nil, err
	}
	return &chosen{clients: addrs[:n], peers: addrs[n:], holds: holds}, nil
}

// chooseAddrs returns n addresses: the given address, and addresses on the
// next free ports. Port 0 means any free port. A single node binds port 0
// itself; several nodes must know each other's ports in advance. The caller
// closes holds after the nodes have ended, so that a node that is restarted
// finds its port still free.
func chooseAddrs(listen string, n int) (out []string, holds []io.Closer, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, nil, cli.Usagef("--listen must be HOST:PORT, got %q", listen)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, nil, cli.Usagef("--listen must have a port up to 65535, got %q", listen)
	}
	if n == 1 {
		return []string{listen}, nil, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, (&chosen{holds: holds}).release())
			out, holds = nil, nil
		}
	}()
	for steps := 0; len(out) < n; steps++ {
		addr, h, err := holdPort(net.JoinHostPort(host, strconv.FormatUint(port, 10)), len(out) == 0)
		if err != nil && (len(out) == 0 || port == 65535 || steps == maxPortSteps) {
			return out, holds, cli.Hint(fmt.Errorf("no free port for the nodes: %w", err), "Choose a different port with --listen.")
		}
		if err == nil {
			out, holds = append(out, addr), append(holds, h)
		}
		if port != 0 {
			port++
		}
	}
	return out, holds, nil
}
