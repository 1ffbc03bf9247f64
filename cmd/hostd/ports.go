package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// nodeInfo says how to reach a running node.
type nodeInfo struct {
	NodeID  string `json:"nodeId"`
	API     string `json:"api"` // URL
	PID     int    `json:"pid"`
	DataDir string `json:"dataDir"`
}

// portsFile is what --ports-file writes.
type portsFile struct {
	Nodes []nodeInfo `json:"nodes"`
}

// writePorts writes the file in one step: who can read it reads all of it.
func writePorts(path string, nodes []nodeInfo) error {
	var text bytes.Buffer
	if err := writeJSON(&text, portsFile{nodes}, "  "); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ports-*")
	if err != nil {
		return fmt.Errorf("ports file: %w", err)
	}
	defer os.Remove(tmp.Name())
	if _, err = tmp.Write(text.Bytes()); err == nil {
		err = tmp.Chmod(0o644)
	}
	if err2 := tmp.Close(); err == nil {
		err = err2
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("ports file: %w", err)
	}
	return nil
}

func readPorts(path string) (portsFile, error) {
	var p portsFile
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// askReady asks the node whether it can serve: nil means yes.
func askReady(ctx context.Context, api string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
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

// pollPeriod is short beside what a node needs to start.
const pollPeriod = 5 * time.Millisecond

// poll calls ask again and again until it returns nil, and returns its last
// error when ctx ends or stop is closed.
func poll(ctx context.Context, stop <-chan struct{}, every time.Duration, ask func() error) error {
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
