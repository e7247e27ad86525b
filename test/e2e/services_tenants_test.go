// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testTenantsServices has two tenants with the same subnets: each its own Service, of which
// the other hears nothing, and both the cluster's name server, its API server and Services
// of the default network.
func testTenantsServices(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	service := func(key string) *corev1.Service {
		namespace, name := split(key)
		s, err := world.api.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	redWeb, blueShop, kubernetes := service("red/web"), service("blue/shop"), service("default/kubernetes")
	public := makeService(ctx, t, dualService("public", "echo"))
	ranked := func(name, namespace string) *corev1.Service {
		s := of(dualService(name, map[string]string{"red": "web", "blue": "shop"}[namespace]), nodePort)
		s.Namespace, s.Spec.Ports = namespace, s.Spec.Ports[:1]
		return makeService(ctx, t, s)
	}
	redOutside, blueOutside := ranked("outside", "red"), ranked("outside", "blue")
	for _, f := range families {
		red, blue := clusterIP(t, redWeb, f, corev1.ProtocolTCP), clusterIP(t, blueShop, f, corev1.ProtocolTCP)
		red.serves(ctx, t, pitch.red, "web1", "web2")
		blue.serves(ctx, t, pitch.blue, "shop1", "shop2") // a server itself
		red.fails(ctx, t, pitch.blue, silent)
		blue.fails(ctx, t, pitch.red, silent)
		red.fails(ctx, t, pitch.client1, silent)
		red.serves(ctx, t, pitch.host1, "web1", "web2") // hosts are trusted
		for _, from := range []place{pitch.red, pitch.blue} {
			for _, p := range tcpAndUDP {
				clusterIP(t, public, f, p).serves(ctx, t, from, "echo1", "echo2")
			}
			err := eventually(ctx, func() error { return resolves(ctx, from, world.serviceAddress(ctx, t, "kube-system/kube-dns", f)) })
			if err != nil {
				t.Errorf("%s asks the name server, %s: %v", from.name, f, err)
			}
		}
		for _, from := range []place{pitch.fabric, pitch.client1, pitch.red, pitch.blue} {
			// node ports are for all.
			atNode(t, redOutside, pitch.host1, f, corev1.ProtocolTCP).serves(ctx, t, from, "web1", "web2")
			atNode(t, blueOutside, pitch.host2, f, corev1.ProtocolTCP).serves(ctx, t, from, "shop1", "shop2")
		}
	}
	api := netip.AddrPortFrom(netip.MustParseAddr(kubernetes.Spec.ClusterIP), 443)
	for _, from := range []place{pitch.red, pitch.blue} {
		err := eventually(ctx, func() error {
			var conn net.Conn
			err := from.Do(func() (err error) { conn, err = net.DialTimeout("tcp", api.String(), patience); return err })
			if err != nil {
				return err
			}
			defer conn.Close()
			// The test is not about the server's identity.
			client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			if err := client.SetDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			return client.HandshakeContext(ctx)
		})
		if err != nil {
			t.Errorf("%s asks the API server %s: %v", from.name, api, err)
		}
	}
}

// resolves asks a name server, over UDP and TCP, for the API server's name.
func resolves(ctx context.Context, from place, server netip.Addr) error {
	var errs []error
	for _, network := range []string{"udp", "tcp"} {
		resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = from.Do(func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, network, netip.AddrPortFrom(server, 53).String())
				return err
			})
			return conn, err
		}}
		short, cancel := context.WithTimeout(ctx, patience)
		_, err := resolver.LookupHost(short, "kubernetes.default.svc.cluster.local.")
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", network, err))
		}
	}
	return errors.Join(errs...)
}
