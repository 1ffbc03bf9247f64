package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// payloadType is the media type of the signed payload.
const payloadType = "text/plain; charset=utf-8; format=sha256sum"

// envelope is a DSSE envelope (github.com/secure-systems-lab/dsse).
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// sign writes SHA256SUMS.dsse.json, a signed envelope of the checksums, if
// there is a key.
func (r *release) sign() error {
	if r.signKey == "" {
		return nil
	}
	text, err := os.ReadFile(r.signKey)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s: no PEM block: make a key with 'openssl genpkey -algorithm ed25519'", r.signKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("%s: %w", r.signKey, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return fmt.Errorf("%s: want an Ed25519 key, got %T", r.signKey, parsed)
	}
	payload, err := os.ReadFile(filepath.Join(r.out, sums))
	if err != nil {
		return err
	}
	public := key.Public().(ed25519.PublicKey)
	id := sha256.Sum256(public)
	out, err := json.MarshalIndent(envelope{payloadType, base64.StdEncoding.EncodeToString(payload), []signature{
		{hex.EncodeToString(id[:8]), base64.StdEncoding.EncodeToString(ed25519.Sign(key, preAuthEncoding(payload)))},
	}}, "", "  ")
	if err != nil {
		return err
	}
	return r.write(sums+".dsse.json", append(out, '\n'))
}

// preAuthEncoding returns the pre-authentication encoding that DSSE signs.
func preAuthEncoding(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

var errSignature = errors.New("the signature is not by this key")

// verify returns the payload of an envelope if the key has signed it.
func verify(text []byte, key ed25519.PublicKey) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		return nil, err
	}
	for _, s := range e.Signatures {
		sig, err := base64.StdEncoding.DecodeString(s.Sig)
		if err == nil && ed25519.Verify(key, preAuthEncoding(payload), sig) {
			return payload, nil
		}
	}
	return nil, errSignature
}
