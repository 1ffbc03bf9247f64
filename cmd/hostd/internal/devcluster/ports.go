package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/files"
)

// NodeInfo has the addresses of a running node.
type NodeInfo struct {
	NodeID  string `json:"nodeId"`
	API     string `json:"api"`              // URL
	Peer    string `json:"peer,omitempty"`   // host:port for other nodes
	Health  string `json:"health,omitempty"` // host:port of the health endpoints, if separate
	PID     int    `json:"pid"`
	DataDir string `json:"dataDir"`
}

// PortsFile is the content of the file --ports-file.
type PortsFile struct {
	Nodes []NodeInfo `json:"nodes"`
	TLS   *TLSInfo   `json:"tls,omitempty"` // nil if the nodes do not use TLS
	// CAFile is the certificate authority of the nodes, as in TLS: for clients
	// that need nothing else.
	CAFile string `json:"caFile,omitempty"`
	// Token is the token that clients send; empty if the nodes do not
	// authenticate callers.
	Token string `json:"token,omitempty"`
}

// TLSInfo has the files that a client needs to verify the nodes and to
// authenticate itself.
type TLSInfo struct {
	CACert string `json:"caCert"`
	Cert   string `json:"cert"`
	Key    string `json:"key"` // a path
}

// WritePorts writes the file atomically. If it contains a token, only its owner
// can read it.
func WritePorts(path string, ports PortsFile) error {
	if ports.TLS != nil {
		ports.CAFile = ports.TLS.CACert
	}
	var text bytes.Buffer
	if err := cli.WriteJSON(&text, ports, "  "); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if ports.Token != "" {
		mode = 0o600
	}
	if err := files.Replace(path, text.Bytes(), mode); err != nil {
		return fmt.Errorf("ports file: %w", err)
	}
	return nil
}

func ReadPorts(path string) (PortsFile, error) {
	var p PortsFile
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// askReady returns nil if the node can serve.
func askReady(ctx context.Context, asker *http.Client, api string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := asker.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", bytes.TrimSpace(body))
	}
	return nil
}

// PollPeriod is short compared to the time that a node needs to start.
const PollPeriod = 5 * time.Millisecond

// Poll calls ask repeatedly until it returns nil. When ctx ends or stop is
// closed, it returns the last error of ask.
func Poll(ctx context.Context, stop <-chan struct{}, every time.Duration, ask func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		case <-stop:
			return err
		}
	}
}
