// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/objectkeeper"
	"coelan.io/coelan/internal/policystream/wire"
)

// Secret is the one with the bundle.
const Secret = "coelan-controller-tls"

// The keys of the Secret.
const (
	authorityKey = "ca.key"
	serverCert   = corev1.TLSCertKey
	serverKey    = corev1.TLSPrivateKeyKey
)

// Keeper has the server's certificate. Every replica has one; the first that finds that something
// has to be written writes it, and the others read it.
type Keeper struct {
	api       kubernetes.Interface
	namespace string
	log       *slog.Logger
	server    atomic.Pointer[tls.Certificate]
	ready     chan struct{}
	loop      *heartbeat.Loop
}

// NewKeeper is one for the controllers of that namespace. The loop reports a step
// that does not end.
func NewKeeper(api kubernetes.Interface, namespace string, log *slog.Logger, loop *heartbeat.Loop) *Keeper {
	return &Keeper{api: api, namespace: namespace, log: log, ready: make(chan struct{}), loop: loop}
}

// Ready is closed when there is a certificate.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Certificate is the present one, for tls.Config.GetCertificate.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.server.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Run works until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	secrets := objectkeeper.Secret(k.api, k.namespace, Secret)
	maps := objectkeeper.ConfigMap(k.api, k.namespace, wire.ConfigMap)
	return objectkeeper.Run(ctx, objectkeeper.Options{
		Informers: []cache.SharedIndexInformer{secrets, maps}, Loop: k.loop,
		Look: func(ctx context.Context) (time.Time, error) {
			return k.look(ctx, objectkeeper.Find[*corev1.Secret](secrets, Secret),
				objectkeeper.Find[*corev1.ConfigMap](maps, wire.ConfigMap))
		},
		Failed: func(err error) {
			k.log.Warn("cannot maintain the certificate of the policy server, retrying", "err", err)
		},
	})
}

// look compares what is there with what should be, and writes it. An authority is published before
// any server uses it.
func (k *Keeper) look(ctx context.Context, secret *corev1.Secret, roots *corev1.ConfigMap) (time.Time, error) {
	var have Bundle
	if secret != nil {
		have = Bundle{
			Roots: secret.Data[wire.RootsKey], AuthorityKey: secret.Data[authorityKey],
			Cert: secret.Data[serverCert], Key: secret.Data[serverKey],
		}
	}
	name := wire.ServerName(k.namespace)
	bundle, again, err := Renew(have, name, time.Now())
	if err != nil {
		return time.Time{}, err
	}
	if !bytes.Equal(bundle.Cert, have.Cert) || !bytes.Equal(bundle.Roots, have.Roots) {
		k.log.Info("issued a new certificate for the policy server", "secret", Secret, "until", again)
		// It is used when the watch delivers it: if two write at a time, one of them is used.
		return again, k.writeSecret(ctx, secret, bundle)
	}
	if roots == nil || roots.Data[wire.RootsKey] != string(bundle.Roots) {
		if err := k.publish(ctx, secret, roots, bundle.Roots); err != nil {
			return time.Time{}, err
		}
	}
	server, err := bundle.Server(name, time.Now())
	if err != nil {
		return time.Time{}, err
	}
	if k.server.Swap(server) == nil {
		close(k.ready)
	}
	return again, nil
}

var labels = map[string]string{"app.kubernetes.io/name": "coelan", "app.kubernetes.io/component": "controller"}

func (k *Keeper) writeSecret(ctx context.Context, old *corev1.Secret, b Bundle) error {
	api := k.api.CoreV1().Secrets(k.namespace)
	data := map[string][]byte{wire.RootsKey: b.Roots, authorityKey: b.AuthorityKey, serverCert: b.Cert,
		serverKey: b.Key}
	var err error
	if old == nil {
		_, err = api.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: Secret, Labels: labels}, Type: corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	} else {
		now := old.DeepCopy()
		now.Data = data
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", k.namespace, Secret, err)
	}
	return nil
}

// publish publishes the authorities for agents. What is published may be of a newer Secret than the
// one that is known here, and then stays: other replicas use that one's certificate already.
func (k *Keeper) publish(ctx context.Context, known *corev1.Secret, old *corev1.ConfigMap, roots []byte) error {
	secret, err := k.api.CoreV1().Secrets(k.namespace).Get(ctx, Secret, metav1.GetOptions{})
	if err == nil && secret.ResourceVersion != known.ResourceVersion || apierrors.IsNotFound(err) {
		err = objectkeeper.ErrNewer
	}
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", k.namespace, Secret, err)
	}
	api := k.api.CoreV1().ConfigMaps(k.namespace)
	data := map[string]string{wire.RootsKey: string(roots)}
	if old == nil {
		_, err = api.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: wire.ConfigMap, Labels: labels}, Data: data,
		}, metav1.CreateOptions{})
	} else {
		now := old.DeepCopy()
		now.Data = data
		_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	}
	if err != nil { // perhaps another replica was faster: the watch delivers what it wrote
		return fmt.Errorf("config map %s/%s: %w", k.namespace, wire.ConfigMap, err)
	}
	return nil
}
