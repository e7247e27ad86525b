// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func issueFor(t *testing.T, store Store, file string, subject Subject) (*Authority, Pair, *x509.Certificate) {
	t.Helper()
	ca, err := store.Authority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(file, subject)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := parseCert(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return ca, pair, cert
}

func TestIssue(t *testing.T) {
	store := Store{t.TempDir()}
	for name, test := range map[string]struct {
		subject Subject
		usage   x509.ExtKeyUsage
		hosts   []string
	}{
		"client": {Subject{Name: "system:node:a", Organization: "system:nodes"}, x509.ExtKeyUsageClientAuth, nil},
		"server": {Subject{Name: "a", Hosts: []string{"a.example", "192.0.2.1", "2001:db8::1"}}, x509.ExtKeyUsageServerAuth,
			[]string{"a.example", "192.0.2.1", "2001:db8::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			ca, pair, cert := issueFor(t, store, "dir/"+name, test.subject)
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(ca.Cert)
			if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{test.usage}}); err != nil {
				t.Error(err)
			}
			for _, h := range test.hosts {
				if err := cert.VerifyHostname(h); err != nil {
					t.Error(err)
				}
			}
			if cert.Subject.CommonName != test.subject.Name {
				t.Errorf("common name %q", cert.Subject.CommonName)
			}
			if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
				t.Error(err)
			}
		})
	}
}

// A second `up` must find the cluster's credentials as they were.
func TestStoreKeeps(t *testing.T) {
	store := Store{t.TempDir()}
	ca, pair, _ := issueFor(t, store, "x", Subject{Name: "x"})
	again, pairAgain, _ := issueFor(t, store, "x", Subject{Name: "x"})
	if diff := cmp.Diff([]Pair{ca.Pair, pair}, []Pair{again.Pair, pairAgain}); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(filepath.Join(store.Dir, "x.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v", info, err)
	}
}

// A pair is made again if that was interrupted.
func TestStoreInterrupted(t *testing.T) {
	store := Store{t.TempDir()}
	if err := os.WriteFile(filepath.Join(store.Dir, "ca.crt"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Authority("ca"); err != nil {
		t.Error(err)
	}
}
