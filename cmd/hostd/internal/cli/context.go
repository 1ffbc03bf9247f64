package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host/files"
)

// Context is a cluster that commands talk to unless they are told otherwise.
// Secrets are not in it, but the files that hold them.
type Context struct {
	Addr      string `json:"addr"`
	TokenFile string `json:"tokenFile,omitempty"`
	CACert    string `json:"caCert,omitempty"`
	Cert      string `json:"cert,omitempty"`
	Key       string `json:"key,omitempty"`
}

// Contexts are those of a user.
type Contexts struct {
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// contextsFile is where the contexts of the user are.
func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "hostd", "contexts.json"), err
}

// LoadContexts reads the contexts of the user; there are none without a file.
func LoadContexts() (Contexts, error) {
	out := Contexts{Contexts: map[string]Context{}}
	path, err := contextsFile()
	if err != nil {
		return out, nil // the user has no folder for it
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, fmt.Errorf("contexts %s: %w", path, err)
	}
	if out.Contexts == nil {
		out.Contexts = map[string]Context{}
	}
	return out, nil
}

// Save writes the contexts in one step, for their user alone.
func (c Contexts) Save() error {
	path, err := contextsFile()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return files.Replace(path, append(text, '\n'), 0o600)
}

// addContext gives a command the flag --context. A context says where the nodes
// are and who calls, unless the command line does. One that is named beats the
// environment, the current one does not. What a context says of who calls is
// for its own nodes: where the address comes from elsewhere none is looked at.
func addContext(c *cobra.Command, r *Remote) {
	c.Flags().StringVar(&r.context, "context", "", "`name` of the context to use; defaults to the current context if --addr is unset")
	Before(c, func([]string) error { return r.useContext(c) })
}

// useContext takes from a context what the command line does not say.
func (r *Remote) useContext(c *cobra.Command) error {
	name := r.context
	named, addressed := name != "", c.Flags().Changed("addr")
	switch {
	case named && addressed:
		return Usagef("--context and --addr both say where the nodes are: give one of them")
	case !named && (addressed || os.Getenv("HOSTD_ADDR") != ""):
		return nil
	}
	all, err := LoadContexts()
	if err != nil {
		return err
	}
	if !named {
		name = all.Current
	}
	context, ok := all.Contexts[name]
	switch {
	case name == "":
		return nil
	case !ok:
		return Usagef("there is no context %q: see 'hostd context ls'", name)
	}
	r.Addr = context.Addr
	flags := c.Flags().Changed
	if context.TokenFile != "" && !flags("token-file") && (named || r.TokenFile == "") {
		r.TokenFile = context.TokenFile
	}
	files := TLSFiles{CACert: context.CACert, Cert: context.Cert, Key: context.Key}
	if files != (TLSFiles{}) && !flags("cacert") && !flags("cert") && !flags("key") && (named || r.Files == (TLSFiles{})) {
		r.Files = files
	}
	return nil
}
