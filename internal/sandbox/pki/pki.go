// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of a sandbox's cluster and keeps them as PEM files.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"coelan.io/coelan/internal/statefile"
)

// lifetime is longer than any sandbox lives.
const lifetime = 10 * 365 * 24 * time.Hour

// Pair is a certificate or public key and its private key, PEM encoded.
type Pair struct{ Cert, Key []byte }

// Store is a directory of pairs, NAME.crt (or .pub) and NAME.key. What exists is kept.
type Store struct{ Dir string }

// Authority is a certificate authority of a store.
type Authority struct {
	Pair
	store Store
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
}

// Subject is the identity that a certificate names and the addresses that it serves at.
type Subject struct {
	// Name and Organization are user and group in Kubernetes.
	Name, Organization string
	// Hosts are DNS names and addresses of a server; none for a client.
	Hosts []string
	// Peer is a server that is also a client of others like it.
	Peer bool
}

// Authority returns the certificate authority name.
func (s Store) Authority(name string) (*Authority, error) {
	pair, err := s.ensure(name, ".crt", func() (Pair, error) {
		return issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		}, nil)
	})
	if err != nil {
		return nil, err
	}
	a := &Authority{Pair: pair, store: s}
	if a.cert, err = parseCert(pair.Cert); err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	if a.key, err = parseKey(pair.Key); err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	return a, nil
}

// Issue returns the certificate that the store has under the file name, made for the subject if
// there is none.
func (a *Authority) Issue(file string, subject Subject) (Pair, error) {
	return a.store.ensure(file, ".crt", func() (Pair, error) {
		template := &x509.Certificate{
			Subject:     pkix.Name{CommonName: subject.Name},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if subject.Organization != "" {
			template.Subject.Organization = []string{subject.Organization}
		}
		if len(subject.Hosts) > 0 {
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			if subject.Peer {
				template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
			}
		}
		for _, h := range subject.Hosts {
			if ip := net.ParseIP(h); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
		return issue(template, a)
	})
}

// KeyPair returns a bare key pair, as for service account tokens.
func (s Store) KeyPair(name string) (Pair, error) {
	return s.ensure(name, ".pub", func() (Pair, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return Pair{}, err
		}
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			return Pair{}, err
		}
		private, err := encodeKey(key)
		return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), Key: private}, err
	})
}

// ensure reads a pair or makes it. The key is written last: a pair without one was interrupted.
func (s Store) ensure(name, suffix string, create func() (Pair, error)) (Pair, error) {
	cert, key := filepath.Join(s.Dir, name+suffix), filepath.Join(s.Dir, name+".key")
	var p Pair
	var err error
	if p.Key, err = os.ReadFile(key); err == nil {
		p.Cert, err = os.ReadFile(cert)
		return p, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	if p, err = create(); err != nil {
		return p, fmt.Errorf("certificate %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(cert), 0o755); err != nil {
		return p, err
	}
	if err := statefile.WriteBytes(cert, 0o644, p.Cert); err != nil {
		return p, err
	}
	return p, statefile.WriteBytes(key, 0o600, p.Key)
}

// issue signs the template with the authority, or with its own key if that is nil.
func issue(template *x509.Certificate, by *Authority) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return Pair{}, err
	}
	// A clock that is set back a little must not make the certificate one of the future.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = template.NotBefore.Add(lifetime)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: private}, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

func parseCert(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM block in the certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no PEM block in the key")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}
