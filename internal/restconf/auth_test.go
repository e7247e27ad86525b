// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPasswords are users of the Secret.
func TestPasswords(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	api := reviewer()
	users := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "coelan-system", Name: UsersSecret}, Data: map[string][]byte{
		"admin": []byte(string(hash) + " odl-admin ops  net\n"), "plain": hash, "broken": []byte("secret"), "empty": nil,
		"dear": []byte("$2a$31$" + string(hash[7:])),
	}}
	if _, err := api.CoreV1().Secrets("coelan-system").Create(t.Context(), users, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := newAuthenticator(api, "coelan-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user, password, want string
		groups               []string
	}{
		{"admin", "secret", "odl-admin", []string{"ops", "net", "system:authenticated"}},
		{"plain", "secret", "restconf:plain", []string{"system:authenticated"}},
		{user: "admin", password: "wrong"}, {user: "admin"}, {user: "broken", password: "secret"}, {user: "empty"},
		{user: "dear", password: "secret"}, {user: "none", password: "no user"}, {},
	} {
		r := httptest.NewRequest("GET", "/restconf", nil)
		r.SetBasicAuth(c.user, c.password)
		for range 2 { // the second answer is remembered
			got, err := a.identify(r)
			if got.Name != c.want || !slices.Equal(got.Groups, c.groups) || (c.want == "") != errors.Is(err, errUnauthenticated) {
				t.Errorf("%s, %s: %+v, %v", c.user, c.password, got, err)
			}
		}
	}
}

// TestCertificates are those of clients: only of the authority of the cluster, and only those that
// are for clients.
func TestCertificates(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := sign(t, key, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, Subject: pkix.Name{CommonName: "ca"}, KeyUsage: x509.KeyUsageCertSign}, nil)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	a, err := newAuthenticator(reviewer(), "coelan-system", func(context.Context) (*x509.CertPool, error) { return pool, nil })
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "jane", Organization: []string{"ops"}}
	forClients := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		want        string
	}{
		"good":         {sign(t, key, &x509.Certificate{Subject: subject, ExtKeyUsage: forClients}, authority), "jane"},
		"a server's":   {sign(t, key, &x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority), ""},
		"of no name":   {sign(t, key, &x509.Certificate{ExtKeyUsage: forClients}, authority), ""},
		"self-signed":  {sign(t, key, &x509.Certificate{Subject: subject, ExtKeyUsage: forClients}, nil), ""},
		"out of date":  {sign(t, key, &x509.Certificate{Subject: subject, ExtKeyUsage: forClients, NotAfter: time.Now().Add(-time.Minute)}, authority), ""},
		"not good yet": {sign(t, key, &x509.Certificate{Subject: subject, ExtKeyUsage: forClients, NotBefore: time.Now().Add(time.Minute)}, authority), ""},
	} {
		r := httptest.NewRequest("GET", "/restconf", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.certificate}}
		got, err := a.identify(r)
		if got.Name != c.want || (c.want == "") != errors.Is(err, errUnauthenticated) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// sign makes a certificate; without an authority it is signed by itself.
func sign(t *testing.T, key *ecdsa.PrivateKey, c, authority *x509.Certificate) *x509.Certificate {
	t.Helper()
	c.SerialNumber = big.NewInt(1)
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if authority == nil {
		authority = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
