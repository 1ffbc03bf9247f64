// Package systemd notifies the service manager that started this process when
// it is ready, alive and stopping, as sd_notify(3) describes. It never fails a
// node: without a manager it does nothing. It starts no goroutine; Watch blocks
// its caller.
package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Notifier sends states to the service manager. The zero Notifier sends
// nothing.
type Notifier struct {
	socket   string
	watchdog time.Duration // interval in which the manager expects a notification; 0 for none
}

// New reads the service manager's variables from the environment.
func New(getenv func(string) string) Notifier {
	n := Notifier{socket: getenv("NOTIFY_SOCKET")}
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n // the variables are for a different process
	}
	if usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 && n.socket != "" {
		n.watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Ready notifies the manager that the node serves.
func (n Notifier) Ready() error { return n.send("READY=1\nSTATUS=serving") }

// Stopping notifies the manager that the node is stopping.
func (n Notifier) Stopping() error { return n.send("STOPPING=1\nSTATUS=stopping") }

// Starting notifies the manager of what the starting node is waiting for.
func (n Notifier) Starting(what string) error { return n.send("STATUS=" + what) }

// Watch notifies the manager that the process is alive, twice per watchdog
// interval, until ctx ends. It calls alive first, so that a node with a
// deadlock sends nothing and is restarted.
func (n Notifier) Watch(ctx context.Context, alive func()) {
	if n.watchdog == 0 {
		return
	}
	every := time.NewTicker(n.watchdog / 2)
	defer every.Stop()
	for {
		alive()
		_ = n.send("WATCHDOG=1") // the manager acts if no notification arrives
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// sendTime bounds a notification: the manager may have stopped reading, and the
// node must neither start nor stop later because of that.
const sendTime = time.Second

// send writes a state to the manager's socket. A name that begins with @ is in
// the abstract namespace.
func (n Notifier) send(state string) error {
	if n.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
