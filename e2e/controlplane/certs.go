package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// lifetime is longer than any test run, and short enough that a leaked key is worthless.
	lifetime = 48 * time.Hour
	// skew lets a certificate be used at once on a machine whose clock was just set back.
	skew = 5 * time.Minute
)

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// writeCertificates makes two authorities of elliptic-curve certificates in the given directory:
// ca.crt signs the API server (apiserver.crt) and the ServiceAccount signing key (sa.key), and
// webhook-ca.crt, which is used for nothing else, signs the extender (extender.crt) and the
// client certificate that kube-scheduler shows to it (extender-client.crt).
// stranger.crt is a client certificate from an authority that nobody trusts.
func writeCertificates(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: controlplane certs DIRECTORY")
	}
	directory := arguments[0]
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	cluster, err := newAuthority(directory, "ca", "e2e-cluster")
	if err != nil {
		return err
	}
	webhook, err := newAuthority(directory, "webhook-ca", "e2e-webhook")
	if err != nil {
		return err
	}
	unknown, err := newAuthority(directory, "unknown-ca", "e2e-unknown")
	if err != nil {
		return err
	}
	leaves := []struct {
		signer *authority
		file   string
		name   string
		usage  x509.ExtKeyUsage
	}{
		{cluster, "apiserver", "kube-apiserver", x509.ExtKeyUsageServerAuth},
		{webhook, "extender", "dra-scheduler", x509.ExtKeyUsageServerAuth},
		{webhook, "extender-client", "kube-scheduler", x509.ExtKeyUsageClientAuth},
		{unknown, "stranger", "stranger", x509.ExtKeyUsageClientAuth},
	}
	for _, leaf := range leaves {
		if err := leaf.signer.issue(directory, leaf.file, leaf.name, leaf.usage); err != nil {
			return err
		}
	}
	signing, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(filepath.Join(directory, "sa.key"), signing)
}

func newAuthority(directory, file, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(name)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	encoded, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(encoded)
	if err != nil {
		return nil, err
	}
	if err := writePEM(filepath.Join(directory, file+".crt"), "CERTIFICATE", encoded); err != nil {
		return nil, err
	}
	return &authority{certificate: certificate, key: key}, nil
}

func (a *authority) issue(directory, file, name string, usage x509.ExtKeyUsage) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template(name)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	template.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	encoded, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(directory, file+".crt"), "CERTIFICATE", encoded); err != nil {
		return err
	}
	return writeKey(filepath.Join(directory, file+".key"), key)
}

func template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(lifetime),
	}, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", encoded)
}

func writePEM(path, kind string, content []byte) error {
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
