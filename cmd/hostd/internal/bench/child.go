package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
)

// roleVariable is the environment variable with the role of a child process of
// a benchmark. Roles are not commands of the program.
const roleVariable = "HOSTD_BENCH_ROLE"

// The roles. Each runs in its own process, as the nodes do, so that everything
// that is compared shares the machine in the same way.
const (
	echoRole = "echo" // serves the echo; its argument is the file for its address
	spinRole = "spin" // uses a CPU
)

// spinFor limits the life of a spinning process that was left behind.
const spinFor = time.Minute

// startChild starts a process with a role.
func startChild(role string, args []string, talk io.Writer) (*devcluster.Child, error) {
	return devcluster.StartChild(role, args, talk, talk, roleVariable+"="+role)
}

// RunChild runs the role that the environment gives this process, until ctx
// ends. It returns false if there is no role, because then the process is not
// the child of a benchmark.
func RunChild(ctx context.Context, args []string) (child bool, err error) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		return false, nil
	case echoRole:
		if len(args) != 1 {
			return true, fmt.Errorf("the echo server needs the file for its address, got %q", args)
		}
		return true, runEcho(ctx, args[0])
	case spinRole:
		for end := time.Now().Add(spinFor); ctx.Err() == nil && time.Now().Before(end); {
		}
		return true, nil
	default:
		return true, fmt.Errorf("%s must be %[3]s or %[4]s, got %[2]q", roleVariable, role, echoRole, spinRole)
	}
}

// runEcho serves the echo and writes its address to a file.
func runEcho(ctx context.Context, addrFile string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := devcluster.WritePorts(addrFile, devcluster.PortsFile{Nodes: []devcluster.NodeInfo{{NodeID: "echo", API: "http://" + l.Addr().String(), PID: os.Getpid()}}}); err != nil {
		return err
	}
	return ServeEcho(ctx, l)
}
