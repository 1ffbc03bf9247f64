// Package systemd tells the service manager that started this process when it
// is ready, alive and stopping, as sd_notify(3) describes. It never fails a
// node: without a manager it does nothing. Its one goroutine belongs to the
// caller of Watch.
package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Notifier sends states to the manager. The zero Notifier sends nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration // within which the manager wants a sign of life; 0 is never
}

// New reads the manager's variables from the environment.
func New(getenv func(string) string) Notifier {
	n := Notifier{socket: getenv("NOTIFY_SOCKET")}
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n // it is meant for another process
	}
	if usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 && n.socket != "" {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Ready reports that the node serves.
func (n Notifier) Ready() error { return n.send("READY=1\nSTATUS=serving") }

// Stopping reports that the node has begun to stop.
func (n Notifier) Stopping() error { return n.send("STOPPING=1\nSTATUS=stopping") }

// Starting reports what the start waits for.
func (n Notifier) Starting(what string) error { return n.send("STATUS=" + what) }

// Watch reports that the process is alive, twice in the time that the manager
// allows, until ctx ends. It first calls alive, so that a node whose locks are
// stuck sends nothing and is started again.
func (n Notifier) Watch(ctx context.Context, alive func()) {
	if n.watchdog == 0 {
		return
	}
	every := time.NewTicker(n.watchdog / 2)
	defer every.Stop()
	for {
		alive()
		_ = n.send("WATCHDOG=1") // the manager acts if none arrives
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// send writes a state to the manager's socket. A name that begins with @ is in
// the abstract name space.
func (n Notifier) send(state string) error {
	if n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
