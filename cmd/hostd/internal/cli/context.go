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

// Context is a saved set of defaults for the cluster that commands call. It
// contains no secrets, only the names of the files that hold them.
type Context struct {
	Addr      string `json:"addr"`
	TokenFile string `json:"tokenFile,omitempty"`
	CACert    string `json:"caCert,omitempty"`
	Cert      string `json:"cert,omitempty"`
	Key       string `json:"key,omitempty"`
}

// Contexts are the contexts of a user.
type Contexts struct {
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// contextsFile returns the path of the user's contexts.
func contextsFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "hostd", "contexts.json"), err
}

// LoadContexts reads the user's contexts; there are none if the file does not
// exist.
func LoadContexts() (Contexts, error) {
	out := Contexts{Contexts: map[string]Context{}}
	path, err := contextsFile()
	if err != nil {
		return out, nil // the user has no configuration directory
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

// Save writes the contexts atomically, readable only by the user.
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

// addContext adds the flag --context to a command. A context sets the addresses
// of the nodes and the credentials, unless the command line does. A context
// that is named by the flag overrides the environment; the current context does
// not. The credentials of a context are only for its own nodes: if the address
// comes from elsewhere, they are not used.
func addContext(c *cobra.Command, r *Remote) {
	c.Flags().StringVar(&r.context, "context", "", "`name` of the context to use; defaults to the current context if --addr is unset")
	Before(c, func([]string) error { return r.useContext(c) })
}

// useContext reads the values that the command line does not set from a
// context.
func (r *Remote) useContext(c *cobra.Command) error {
	name := r.context
	named, addressed := name != "", c.Flags().Changed("addr")
	switch {
	case named && addressed:
		return Usagef("--context and --addr both set the nodes' addresses: set only one of them")
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
		return Usagef("the context %q does not exist: see 'hostd context ls'", name)
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
