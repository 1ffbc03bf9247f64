package devcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/config"
)

// devContext is the name of the context with which commands reach the nodes of
// dev.
const devContext = "dev"

// admit creates the token of commands and the nodes' token file. It keeps
// the token of an earlier run.
func (c *Cluster) admit(ctx context.Context, data string) error {
	dir, err := filepath.Abs(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c.TokenFile, c.hashes = filepath.Join(dir, "token"), filepath.Join(dir, "tokens")
	if c.Token, err = cli.ReadToken(ctx, c.TokenFile); os.IsNotExist(err) {
		c.Token = authn.NewToken()
		err = os.WriteFile(c.TokenFile, []byte(c.Token+"\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	line, err := authn.TokenLine("admin", c.Token, time.Time{})
	if err != nil {
		return err
	}
	return os.WriteFile(c.hashes, []byte(line+"\n"), 0o600)
}

// authFlags returns the flags that make nodes authenticate callers; none if
// they do not.
func (c *Cluster) authFlags() []string {
	if c.Token == "" {
		return nil
	}
	return []string{"--auth", string(config.AuthRequired), "--token-file", c.hashes}
}

// use makes the nodes the default cluster of commands.
func (c *Cluster) use() error {
	all, err := cli.LoadContexts()
	if err != nil {
		return err
	}
	all.Current = devContext
	all.Contexts[devContext] = cli.Context{Addr: strings.Join(c.apis(), ","), TokenFile: c.TokenFile, CACert: c.Files.CACert, Cert: c.Files.Cert, Key: c.Files.Key}
	return all.Save()
}
