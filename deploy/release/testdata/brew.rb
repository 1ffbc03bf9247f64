# A small part of Homebrew: loads the formula of ARGV[0] as SYSTEM (ARGV[1]:
# linux or macos) on PROCESSOR (ARGV[2]: arm or intel), prints the archive's url
# and sum, and installs the current folder to the prefix ARGV[3]. Anything of the
# formula that it does not know is an error.
require "fileutils"
require "pathname"

FILE, SYSTEM, PROCESSOR, PREFIX = ARGV

class Target
  def initialize(path) = @path = path

  def install(files)
    FileUtils.mkdir_p(@path)
    pairs = files.is_a?(Hash) ? files.to_a : Array(files).map { |f| [f, File.basename(f)] }
    raise "nothing to install in #{@path}" if pairs.empty?
    pairs.each { |from, to| FileUtils.cp(from, File.join(@path, to)) }
  end

  def to_s = @path.to_s
end

class Service
  attr_reader :command

  def run(command) = @command = command
  def keep_alive(**) = nil
  def log_path(_) = nil
  def error_log_path(_) = nil
  def opt_bin = Pathname.new(PREFIX) / "bin"
  def var = Pathname.new(PREFIX) / "var"
end

class Formula
  class << self
    attr_reader :url_value, :sha256_value, :version_value, :service_block, :test_block

    def desc(text) = (raise "desc: #{text}" if text.length > 80 || text.end_with?("."))
    def homepage(_) = nil
    def license(_) = nil
    def version(text) = @version_value = text
    def url(text) = @url_value = text
    def sha256(text) = @sha256_value = text
    def on_macos = (yield if SYSTEM == "macos")
    def on_linux = (yield if SYSTEM == "linux")
    def on_arm = (yield if PROCESSOR == "arm")
    def on_intel = (yield if PROCESSOR == "intel")
    def service(&block) = @service_block = block
    def test(&block) = @test_block = block
  end

  def version = self.class.version_value
  def bin = Target.new("#{PREFIX}/bin")
  def man1 = Target.new("#{PREFIX}/share/man/man1")
  def doc = Target.new("#{PREFIX}/share/doc/hostd")
  def bash_completion = Target.new("#{PREFIX}/etc/bash_completion.d")
  def zsh_completion = Target.new("#{PREFIX}/share/zsh/site-functions")
  def fish_completion = Target.new("#{PREFIX}/share/fish/vendor_completions.d")

  def shell_output(command)
    out = `#{command}`
    raise "#{command}: #{$?}" unless $?.success?
    out
  end

  def assert_match(want, got) = (raise "#{got.inspect} lacks #{want}" unless got.include?(want))
end

load FILE
puts Hostd.url_value, Hostd.sha256_value
hostd = Hostd.new
hostd.install
hostd.instance_eval(&Hostd.test_block)
service = Service.new
service.instance_eval(&Hostd.service_block)
puts service.command.join(" ")
