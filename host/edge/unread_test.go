package edge_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/edge"
)

// TestUnreadBodiesEndTheConnection: the unread rest of a body whose request was
// answered early is not parsed as the connection's next request.
func TestUnreadBodiesEndTheConnection(t *testing.T) {
	s := serve(t, edge.Options{})
	inner := "POST " + entityPath + "Send HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	inner = strings.Replace(inner, "Host: node", "Host: node"+strings.Repeat(" ", 512-len(inner)), 1)
	body := strings.Repeat(inner, 1<<20/512)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute)) // in case the server hangs
	go fmt.Fprintf(conn, "POST %sSend HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", entityPath, len(body), body)
	var answers []byte
	for buf := make([]byte, 4096); strings.Count(string(answers), "HTTP/1.1 ") < 2; {
		n, err := conn.Read(buf)
		answers = append(answers, buf[:n]...)
		if err != nil {
			break // the connection may be reset after the response
		}
	}
	if n := strings.Count(string(answers), "HTTP/1.1 "); n != 1 {
		t.Errorf("%d answers to one request: %.300s", n, answers)
	}
}
