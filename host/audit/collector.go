package audit

import (
	"fmt"
	"net"
	"os"
	"time"
)

// syslogHead is in front of each line that a collector gets: the facility
// authpriv and the severity info, and what a daemon on the same machine knows
// senders by.
const syslogHead = "<86>%s hostd-audit[%d]: "

// sendTime bounds the wait for a collector that takes nothing.
const sendTime = time.Second

// collected is the way to a collector. Its chain begins with each start: what a
// collector has cannot be looked at.
type collected struct {
	open func() (net.Conn, error)
	conn net.Conn // nil: to be opened
	prev string   // hash of the last line that was taken
}

// send hands lines over, one message each, and returns how many were taken. One
// that a daemon did not take which was started anew meanwhile is sent again.
func (c *collected) send(lines []*queued, lost uint64, signer *Signer) (taken int, err error) {
	for _, q := range lines {
		text, err := q.render(c.prev, false, lost, signer)
		if err != nil {
			return taken, err
		}
		text = text[:len(text)-1]
		message := append(fmt.Appendf(nil, syslogHead, q.line.Time.Format(time.Stamp), os.Getpid()), text...)
		if fresh, err := c.message(message); err != nil {
			if fresh {
				return taken, err
			}
			if _, err := c.message(message); err != nil {
				return taken, err
			}
		}
		taken, lost, c.prev = taken+1, 0, hashOf(text)
	}
	return taken, nil
}

// message sends one message; fresh says that the way was opened for it.
func (c *collected) message(text []byte) (fresh bool, err error) {
	if c.conn == nil {
		fresh = true
		if c.conn, err = c.open(); err != nil {
			c.conn = nil
			return fresh, err
		}
	}
	err = c.conn.SetWriteDeadline(time.Now().Add(sendTime))
	if err == nil {
		_, err = c.conn.Write(text)
	}
	if err != nil {
		c.close()
	}
	return fresh, err
}

func (c *collected) close() {
	if c.conn != nil {
		_ = c.conn.Close() // a message is taken at once, or not at all
		c.conn = nil
	}
}
