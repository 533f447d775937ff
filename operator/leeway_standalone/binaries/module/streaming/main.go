// The streaming half of Leeway's container runtime: the CRI's Exec and PortForward, and the HTTP server behind the
// addresses they answer with. A container or a pod is entered by another program, named after "--":
//
//	leeway-streaming --socket PATH -- ENTER…
//
// which is run as `ENTER… exec CONTAINER [--tty] -- COMMAND…` and as `ENTER… dial SANDBOX PORT`.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/creack/pty"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// How long a forwarded connection may go on after its client stopped sending, which is also how a lost client looks.
const halfCloseGrace = time.Minute

var errNoAttach = status.Error(codes.Unimplemented,
	"attaching to a running process is not possible here: use `kubectl logs -f` to follow it, or `kubectl exec` for a new process")

func main() {
	socket := flag.String("socket", "", "unix socket to serve the CRI on")
	address := flag.String("address", "127.0.0.1:0", "address to serve streams on; the kubelet must reach it")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: leeway-streaming --socket PATH [--address HOST:PORT] -- ENTER…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *socket == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *socket, *address, flag.Args()); err != nil {
		log.Fatalf("leeway-streaming: %v", err)
	}
}

// serve runs both servers until the context ends or one of them fails.
func serve(ctx context.Context, socket, address string, enter []string) error {
	streams, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	calls, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: streams.Addr().String()}
	handler, err := streaming.NewServer(config, runtime{enter})
	if err != nil {
		return err
	}
	web := &http.Server{
		Handler:     handler,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(parent context.Context, conn net.Conn) context.Context {
			child, cancel := context.WithCancel(parent)
			conn.(*connection).cancel = cancel
			return child
		},
	}
	rpc := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(rpc, &service{streams: handler})
	failed := make(chan error, 2)
	go func() { failed <- web.Serve(listener{streams}) }()
	go func() { failed <- rpc.Serve(calls) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	rpc.Stop()
	return errors.Join(err, web.Close())
}

// service is the part of the CRI's RuntimeService that hands out addresses of streams.
type service struct {
	cri.UnimplementedRuntimeServiceServer
	streams streaming.Server
}

func (s *service) Exec(_ context.Context, request *cri.ExecRequest) (*cri.ExecResponse, error) {
	return s.streams.GetExec(request)
}

func (s *service) Attach(context.Context, *cri.AttachRequest) (*cri.AttachResponse, error) {
	return nil, errNoAttach
}

func (s *service) PortForward(_ context.Context, request *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return s.streams.GetPortForward(request)
}

// listener and connection end a request's context with its connection: once a connection is upgraded to streams,
// net/http no longer watches it, and the process of a lost client would run on.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &connection{Conn: conn}, err
}

type connection struct {
	net.Conn
	cancel context.CancelFunc
}

func (c *connection) Read(buffer []byte) (int, error) {
	count, err := c.Conn.Read(buffer)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.cancel()
	}
	return count, err
}

func (c *connection) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// runtime runs what a stream asks for by the program that enters containers and pods.
type runtime struct{ enter []string }

// command prepares a run of the program that is killed, with its process group, when the context ends.
func (r runtime) command(ctx context.Context, arguments ...string) *exec.Cmd {
	arguments = append(append([]string{}, r.enter[1:]...), arguments...)
	command := exec.CommandContext(ctx, r.enter[0], arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	return command
}

func (r runtime) Exec(ctx context.Context, container string, argv []string, in io.Reader, out, errOut io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize) error {
	arguments := []string{"exec", container}
	if tty {
		arguments = append(arguments, "--tty")
	}
	command := r.command(ctx, append(append(arguments, "--"), argv...)...)
	var err error
	if tty {
		err = runOnTerminal(command, in, out, resize)
	} else {
		command.Stdout, command.Stderr = out, errOut
		err = runOnPipes(command, in, func() {})
	}
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		code := exit.ExitCode()
		if wait := exit.Sys().(syscall.WaitStatus); wait.Signaled() {
			code = 128 + int(wait.Signal())
		}
		return utilexec.CodeExitError{Err: err, Code: code}
	}
	return err
}

func (runtime) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool,
	<-chan remotecommand.TerminalSize) error {
	return errNoAttach
}

func (r runtime) PortForward(ctx context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command := r.command(ctx, "dial", sandbox, strconv.Itoa(int(port)))
	var complaint bytes.Buffer
	command.Stdout, command.Stderr = stream, &complaint
	err := runOnPipes(command, stream, func() { time.AfterFunc(halfCloseGrace, cancel) })
	if err != nil && complaint.Len() > 0 {
		return errors.New(string(bytes.TrimSpace(complaint.Bytes())))
	}
	return err
}

// runOnPipes feeds the command from `in` without waiting for its end, as os/exec would, and calls atEnd there.
func runOnPipes(command *exec.Cmd, in io.Reader, atEnd func()) error {
	command.SysProcAttr.Setpgid = true
	if in != nil {
		stdin, err := command.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
			atEnd()
		}()
	}
	return command.Run()
}

// runOnTerminal makes the command the leader of a session on a terminal of its own.
func runOnTerminal(command *exec.Cmd, in io.Reader, out io.Writer, resize <-chan remotecommand.TerminalSize) error {
	terminal, err := pty.Start(command)
	if err != nil {
		return err
	}
	defer terminal.Close()
	if in != nil {
		go func() { _, _ = io.Copy(terminal, in) }()
	}
	if resize != nil {
		go func() {
			for size := range resize {
				_ = pty.Setsize(terminal, &pty.Winsize{Rows: size.Height, Cols: size.Width})
			}
		}()
	}
	if out != nil {
		_, _ = io.Copy(out, terminal) // ends with an error when the last process on the terminal does
	}
	return command.Wait()
}
